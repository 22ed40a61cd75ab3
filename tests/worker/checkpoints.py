"""Checkpoints the tests make themselves, and the demo model where it can be had."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine_daemon.errors import InspectError
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker import models

VOCABULARY = 128
KINDS = ("llama", "qwen3", "qwen3_moe", "mistral", "gemma3", "qwen3_5")
_SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "eos_token_id": 2,
    "bos_token_id": 1,
    "pad_token_id": 0,
}


def quiet(stage: str, done: int, total: int) -> None:
    """A `ProgressFn` nobody listens to."""


@cache
def demo_model() -> Path:
    """The demo model's folder through the real code and the user's cache; skips without it."""
    try:
        return models.locate(EngineOptions(), quiet)
    except InspectError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no demo model: {error.lines()}")


def save_tokenizer(folder: Path) -> None:
    """A tokenizer.json of VOCABULARY words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = {f"w{i}": i for i in range(VOCABULARY)}
    Tokenizer(WordLevel(words, unk_token="w0")).save(str(folder / "tokenizer.json"))


def tiny_model(kind: str, **changes: Any) -> Any:
    """A model of random weights, fp32, always the same; `changes` of its configuration."""
    import torch
    import transformers as t

    torch.manual_seed(7)
    base = _SHAPE | changes
    match kind:
        case "llama":
            made = t.LlamaForCausalLM(t.LlamaConfig(**base, num_hidden_layers=3))
        case "llama of 4":
            shape = {**base, "num_key_value_heads": 4}
            made = t.LlamaForCausalLM(t.LlamaConfig(**shape, num_hidden_layers=2))
        case "qwen3":
            shape = {**base, "head_dim": 32}
            made = t.Qwen3ForCausalLM(t.Qwen3Config(**shape, num_hidden_layers=3))
        case "qwen3_moe":
            experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
            shape = {**base, **experts, "head_dim": 32, "norm_topk_prob": True}
            made = t.Qwen3MoeForCausalLM(t.Qwen3MoeConfig(**shape, num_hidden_layers=3))
        case "mistral":
            made = t.MistralForCausalLM(
                t.MistralConfig(**base, num_hidden_layers=3, sliding_window=8)
            )
        case "gemma3":
            windows = ["sliding_attention", "sliding_attention", "full_attention"]
            config = t.Gemma3TextConfig(
                **base,
                num_hidden_layers=3,
                head_dim=16,
                query_pre_attn_scalar=16,
                sliding_window=8,
                layer_types=windows,
            )
            made = t.Gemma3ForCausalLM(config)
        case "qwen3_5" | "qwen3_5 of 4":
            heads = 4 if kind == "qwen3_5 of 4" else 2
            shape = {**base, "num_key_value_heads": heads}
            config = t.Qwen3_5TextConfig(
                **shape,
                num_hidden_layers=4,
                head_dim=32,
                linear_num_key_heads=heads,
                linear_num_value_heads=2 * heads,
                linear_key_head_dim=16,
                linear_value_head_dim=16,
            )
            made = t.Qwen3_5ForCausalLM(config)
        case _:
            raise ValueError(kind)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.15)
    return made.eval()


def save_tiny(folder: Path, kind: str = "llama", **options: Any) -> Path:
    """Save a tiny model with a tokenizer; `options` go to save_pretrained."""
    folder.mkdir(parents=True, exist_ok=True)
    tiny_model(kind).save_pretrained(folder, **options)
    save_tokenizer(folder)
    return folder


def edit_config(folder: Path, **changes: object) -> None:
    """Change keys of config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def save_tiny_gguf(path: Path, kind: str = "F32") -> Path:
    """A llama of two layers in GGUF, fp32 or quantised, with a byte-level tokenizer and a
    chat template."""
    import gguf
    import gguf.quants
    import numpy as np
    from tokenizers.pre_tokenizers import ByteLevel

    tokens = ["<|a|>", "<|b|>", "<|c|>", *sorted(ByteLevel.alphabet()), "ab"]
    width, heads, ffn = 32, 2, 48 if kind == "F32" else 64
    stored = gguf.GGMLQuantizationType[kind]
    random = np.random.default_rng(3)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(2)
    writer.add_context_length(256)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_rope_dimension_count(width // heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")

    def add(name: str, *shape: int) -> None:
        weights = random.normal(0, 0.1, shape) if len(shape) > 1 else np.ones(shape)
        weights = weights.astype(np.float32)
        if kind == "F32" or len(shape) == 1:
            writer.add_tensor(name, weights)
        else:
            writer.add_tensor(name, gguf.quants.quantize(weights, stored), raw_dtype=stored)

    add("token_embd.weight", len(tokens), width)
    add("output_norm.weight", width)
    for i in range(2):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{i}.{part}.weight", width, width)
        add(f"blk.{i}.ffn_gate.weight", ffn, width)
        add(f"blk.{i}.ffn_up.weight", ffn, width)
        add(f"blk.{i}.ffn_down.weight", width, ffn)
        add(f"blk.{i}.attn_norm.weight", width)
        add(f"blk.{i}.ffn_norm.weight", width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def save_sparse(folder: Path, layers: int, width: int) -> Path:
    """A llama of any size in bf16, its weights zeros that take no room on disk."""
    import struct

    import torch
    import transformers as t

    shape = {**_SHAPE, "hidden_size": width, "intermediate_size": 4 * width}
    config = t.LlamaConfig(**shape, num_hidden_layers=layers, dtype=torch.bfloat16)
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    save_tokenizer(folder)
    heads, groups = width, width * config.num_key_value_heads // config.num_attention_heads
    kinds = {
        "self_attn.q_proj": [heads, width],
        "self_attn.k_proj": [groups, width],
        "self_attn.v_proj": [groups, width],
        "self_attn.o_proj": [width, heads],
        "mlp.gate_proj": [4 * width, width],
        "mlp.up_proj": [4 * width, width],
        "mlp.down_proj": [width, 4 * width],
        "input_layernorm": [width],
        "post_attention_layernorm": [width],
    }
    shapes = {
        f"model.layers.{i}.{name}.weight": shape
        for i in range(layers)
        for name, shape in kinds.items()
    }
    shapes |= {
        "model.embed_tokens.weight": [VOCABULARY, width],
        "lm_head.weight": [VOCABULARY, width],
        "model.norm.weight": [width],
    }
    header: dict[str, Any] = {}
    end = 0
    for name, dims in shapes.items():
        size = 2 * dims[0] * (dims[1] if len(dims) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": dims, "data_offsets": [end, end + size]}
        end += size
    raw = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + end)
    return folder
