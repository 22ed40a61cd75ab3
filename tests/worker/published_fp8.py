"""A tiny checkpoint laid out as Qwen3.6-27B-FP8 is published, and the same weights dequantised.

Names, dtypes, quantisation settings and file layout are the published ones; sizes are small. What
it should compute is made here, from the numbers in its files, without any loader of ours.
"""

import json
import unicodedata
from pathlib import Path
from typing import Any, Final

BLOCK: Final = 128
VOCABULARY: Final = 320
_PLAIN: Final = (
    "lm_head", "embed_tokens", "layernorm", "norm", "A_log", "dt_bias", "conv1d", "in_proj_a",
    "in_proj_b", "visual", "mtp.fc",
)  # fmt: skip
"""Parts of the names of what is left in bf16."""
_TEXT: Final[dict[str, Any]] = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_output_gate": True,
    "dtype": "bfloat16",
    "eos_token_id": 259,
    "full_attention_interval": 4,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 256,
    "initializer_range": 0.02,
    "intermediate_size": 512,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 128,
    "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 4096,
    "model_type": "qwen3_5_text",
    "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": False,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {
        "mrope_interleaved": True,
        "mrope_section": [6, 5, 5],
        "partial_rotary_factor": 0.25,
        "rope_theta": 10000000,
        "rope_type": "default",
    },
    "tie_word_embeddings": False,
    "use_cache": True,
    "vocab_size": VOCABULARY,
}
_VISION: Final[dict[str, Any]] = {
    "deepstack_visual_indexes": [],
    "depth": 2,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 64,
    "in_channels": 3,
    "initializer_range": 0.02,
    "intermediate_size": 96,
    "model_type": "qwen3_5",
    "num_heads": 4,
    "num_position_embeddings": 64,
    "out_hidden_size": 256,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
_CONFIG: Final[dict[str, Any]] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "image_token_id": 300,
    "model_type": "qwen3_5",
    "text_config": _TEXT,
    "tie_word_embeddings": False,
    "video_token_id": 301,
    "vision_config": _VISION,
    "vision_end_token_id": 302,
    "vision_start_token_id": 303,
}


def save(folder: Path) -> Path:
    """Write the checkpoint: a file a layer, one of the rest, an index, config and tokenizer."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    tensors = _published(_random_model())
    files: dict[str, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        files.setdefault(_file_of(name), {})[name] = tensor.contiguous()
    for file, part in files.items():
        save_file(part, folder / file, metadata={"format": "pt"})
    index = {
        "metadata": {"total_size": sum(t.nbytes for t in tensors.values())},
        "weight_map": {name: file for file, part in files.items() for name in part},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    plain = sorted({n.rpartition(".")[0] for n in tensors if _is_plain(n) and "." in n})
    config = _CONFIG | {
        "quantization_config": {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "modules_to_not_convert": plain,
            "quant_method": "fp8",
            "weight_block_size": [BLOCK, BLOCK],
        }
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    _save_tokenizer(folder)
    return folder


def dequantised_model(folder: Path, dtype: Any) -> Any:
    """Plain transformers on the numbers in the files: fp8 value times the scale of its block."""
    import torch
    from safetensors.torch import load_file
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    stored = {k: v for file in folder.glob("*.safetensors") for k, v in load_file(file).items()}
    weights = {}
    for name, tensor in stored.items():
        scales = stored.get(f"{name}_scale_inv")
        if name.endswith("_scale_inv") or name.startswith("mtp."):
            continue
        whole = tensor.to(torch.float32)
        if scales is not None:
            grid = scales.float().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
            whole = whole * grid
        weights[name] = whole.to(dtype)
    model = Qwen3_5ForConditionalGeneration(Qwen3_5Config(**_CONFIG)).to(dtype)
    model.load_state_dict(weights, strict=True)
    return model.eval()


def _random_model() -> Any:
    import torch
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    torch.manual_seed(11)
    model = Qwen3_5ForConditionalGeneration(Qwen3_5Config(**_CONFIG))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.08)
    return model


def _published(model: Any) -> dict[str, Any]:
    """Tensors by their published names: e4m3 with bf16 scales, or bf16; a small MTP head too."""
    import torch

    named = dict(model.state_dict())
    for name in [n for n in named if "language_model.layers.3." in n]:
        named[name.replace("model.language_model.layers.3.", "mtp.layers.0.")] = named[name] * 0.5
    named["mtp.fc.weight"] = torch.randn(256, 512)
    named["mtp.norm.weight"] = torch.zeros(256)
    made: dict[str, Any] = {}
    for name, tensor in named.items():
        if _is_plain(name):
            made[name] = tensor.to(torch.bfloat16)
            continue
        rows, columns = (size // BLOCK for size in tensor.shape)
        blocks = tensor.float().reshape(rows, BLOCK, columns, BLOCK)
        scales = (blocks.abs().amax((1, 3)) / 448).to(torch.bfloat16)
        scaled = blocks / scales.float()[:, None, :, None]
        made[name] = scaled.reshape(tensor.shape).clamp(-448, 448).to(torch.float8_e4m3fn)
        made[f"{name}_scale_inv"] = scales
    return made


def _is_plain(name: str) -> bool:
    return any(part in name for part in _PLAIN)


def _file_of(name: str) -> str:
    if name.startswith("mtp."):
        return "mtp.safetensors"
    layer = name.partition("language_model.layers.")[2].partition(".")[0]
    return f"layers-{layer}.safetensors" if layer else "outside.safetensors"


def _save_tokenizer(folder: Path) -> None:
    """A byte-level BPE that composes characters first (NFC), with the specials of the family."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
    from tokenizers import pre_tokenizers as pre

    letters = sorted(pre.ByteLevel.alphabet())
    words = {letter: number for number, letter in enumerate(letters)}
    words["th"] = len(words)
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[("t", "h")]))
    tokenizer.normalizer = normalizers.NFC()
    split = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
    split += r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer.pre_tokenizer = pre.Sequence(
        [
            pre.Split(Regex(split), "isolated"),
            pre.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in specials])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "Qwen2Tokenizer",
        "model_max_length": 4096,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def composed(text: str) -> str:
    """What the tokenizer reads of a text."""
    return unicodedata.normalize("NFC", text)
