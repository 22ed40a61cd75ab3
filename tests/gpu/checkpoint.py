"""A checkpoint of random weights in the shape of Qwen3.6-27B, as many layers as asked for.

Written twice at most: in bf16, and in fine-grained FP8 as the large one is published.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
import transformers as t
from safetensors.torch import save_file
from torch import Tensor

BLOCK: Final = 128
VOCABULARY: Final = 248_320
INTERVAL: Final = 4
"""Three layers of linear attention, then one of full attention."""
_REAL: Final[dict[str, Any]] = {
    "hidden_size": 5120,
    "intermediate_size": 17_408,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
}
_TINY: Final[dict[str, Any]] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
}
_PEAK: Final = 4
_PLAIN: Final = ("norm", "A_log", "dt_bias", "conv1d", "in_proj_a", "in_proj_b")
"""Parts of the names of what FP8 leaves in bf16, beside what is outside the layers."""


def config_of(layers: int, *, tiny: bool) -> Any:
    """The text model's configuration."""
    return t.Qwen3_5TextConfig(
        **(_TINY if tiny else _REAL),
        vocab_size=VOCABULARY,
        num_hidden_layers=layers,
        linear_conv_kernel_dim=4,
        max_position_embeddings=262_144,
        rms_norm_eps=1e-6,
        rope_parameters={
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10] if not tiny else [6, 5, 5],
            "partial_rotary_factor": 0.25,
            "rope_theta": 10_000_000,
            "rope_type": "default",
        },
        tie_word_embeddings=False,
        eos_token_id=VOCABULARY - 1,
        dtype=torch.bfloat16,
    )


def file_bytes(layers: int, *, tiny: bool) -> int:
    """Of the checkpoint in bf16."""
    with torch.device("meta"):
        model = t.Qwen3_5ForCausalLM(config_of(layers, tiny=tiny))
    return int(2 * sum(x.numel() for x in model.parameters()))


def save(folder: Path, layers: int, device: torch.device, *, tiny: bool) -> None:
    """In bf16, a file a layer; numbers are drawn on `device`, always the same."""
    with torch.device("meta"):
        model = t.Qwen3_5ForCausalLM(config_of(layers, tiny=tiny))
    random = torch.Generator(device).manual_seed(36)
    tensors = ((n, _drawn(n, x, random, device)) for n, x in model.state_dict().items())
    _write(folder, model.config, tensors, {})


def save_fp8(source: Path, folder: Path, device: torch.device) -> None:
    """The same weights in e4m3 with a scale for each block, what is outside layers in bf16."""
    config = t.AutoConfig.from_pretrained(source)
    settings = {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [BLOCK, BLOCK],
        "modules_to_not_convert": sorted(
            {n.rpartition(".")[0] for n, _ in _stored(source) if _is_plain(n)}
        ),
    }
    parts = (part for name, x in _stored(source) for part in _quantised(name, x.to(device)))
    _write(folder, config, parts, {"quantization_config": settings})


def _drawn(name: str, like: Tensor, random: torch.Generator, device: torch.device) -> Tensor:
    """Weights of the size that training begins with, gates and decays as they are made; an output
    layer that makes rows with a peak."""
    if name.endswith("A_log"):
        made = torch.empty(like.shape, device=device).uniform_(0.1, 16, generator=random).log()
    elif like.dim() == 1:
        fill = 0.0 if name.endswith("layernorm.weight") or name.endswith("norm.weight") else 1.0
        made = torch.full(like.shape, fill, device=device)
        if name.endswith("linear_attn.norm.weight"):  # this one is not around 1
            made.fill_(1.0)
    else:
        spread = 1 / math.sqrt(like.shape[-1]) if like.dim() == 2 else 0.3
        spread *= _PEAK if name.startswith("lm_head") else 1
        made = torch.empty(like.shape, device=device).normal_(0.0, spread, generator=random)
    return made.to(torch.bfloat16)


def _quantised(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    if _is_plain(name):
        yield name, tensor
        return
    rows, columns = (size // BLOCK for size in tensor.shape)
    blocks = tensor.float().reshape(rows, BLOCK, columns, BLOCK)
    scales = (blocks.abs().amax((1, 3)) / 448).to(torch.bfloat16)
    scaled = (blocks / scales.float()[:, None, :, None]).reshape(tensor.shape)
    yield name, scaled.clamp(-448, 448).to(torch.float8_e4m3fn)
    yield f"{name}_scale_inv", scales


def _is_plain(name: str) -> bool:
    return ".layers." not in name or any(part in name for part in _PLAIN)


def _stored(folder: Path) -> Iterator[tuple[str, Tensor]]:
    from safetensors import safe_open

    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  it is no mapping
                yield name, file.get_tensor(name)


def _write(
    folder: Path, config: Any, tensors: Iterator[tuple[str, Tensor]], more: dict[str, Any]
) -> None:
    """One file at a time in memory."""
    folder.mkdir(parents=True)
    files: dict[str, str] = {}
    part: dict[str, Tensor] = {}
    current = ""
    total = 0
    for name, tensor in tensors:
        layer = name.partition(".layers.")[2].partition(".")[0]
        file = f"layer-{int(layer):02}.safetensors" if layer else f"{name}.safetensors"
        if file != current and part:
            save_file(part, folder / current, metadata={"format": "pt"})
            part = {}
        current, files[name] = file, file
        part[name] = tensor.contiguous().cpu()
        total += tensor.nbytes
    save_file(part, folder / current, metadata={"format": "pt"})
    index = {"metadata": {"total_size": total}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    settings = config.to_dict() | {"architectures": ["Qwen3_5ForCausalLM"]} | more
    (folder / "config.json").write_text(json.dumps(settings, indent=1))
    words = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": {"a": 0}},
    }
    words["model"] |= {"unk_token": "a"}  # type: ignore[operator]  # a dict
    (folder / "tokenizer.json").write_text(json.dumps(words))
