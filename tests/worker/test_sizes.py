"""Estimates of what forwards and caches take, against what they do take."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t

from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.sizes import beside_weights, bounded_bytes, position_bytes, scratch_bytes
from tests.worker.checkpoints import KINDS, quiet, save_tiny, save_tokenizer

pytestmark = pytest.mark.engine
_SHAPE: dict[str, Any] = {
    "vocab_size": 16_384,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "num_hidden_layers": 4,
    "max_position_embeddings": 8192,
}
LENGTH = 4096


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_takes_what_was_foreseen(tmp_path: Path, kind: str) -> None:
    backend = HfBackend()
    folder = save_tiny(tmp_path, kind)
    backend.load(EngineOptions(model=str(folder), device="cpu"), str(folder), quiet)
    cache = backend.new_cache("kv")
    backend.forward([1] * 40, cache)
    config = backend._model.config
    kinds = backend._layer_kinds()
    report = cache.report(None)
    assert report.growing_bytes is not None
    fixed = report.fixed_bytes or 0
    windows = sum(k.bytes for k in report.kinds or [] if k.growth == "bounded")
    assert report.growing_bytes - windows == 40 * position_bytes(config, kinds, 4)
    foreseen = bounded_bytes(config, kinds, 4)
    # A window of n holds n - 1 positions until the next one comes.
    assert fixed + windows <= foreseen <= (fixed + windows) * 8 / 7


def save(folder: Path, kind: str) -> None:
    """A model in bf16 whose activations are large beside everything else."""
    torch.manual_seed(3)
    if kind == "qwen3_5":
        linear = {"linear_num_key_heads": 4, "linear_num_value_heads": 8}
        sizes = {"linear_key_head_dim": 64, "linear_value_head_dim": 64}
        model = t.Qwen3_5ForCausalLM(t.Qwen3_5TextConfig(**_SHAPE, **linear, **sizes))
    elif kind == "gemma3":
        model = t.Gemma3ForCausalLM(t.Gemma3TextConfig(**_SHAPE, sliding_window=512))
    else:
        model = t.LlamaForCausalLM(t.LlamaConfig(**_SHAPE))
    model.to(torch.bfloat16).save_pretrained(folder)
    save_tokenizer(folder)


def memory(field: str) -> int:
    """Bytes of this process, from the system's own account."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


def take(folder: str, what: str) -> None:
    """In a process of its own: what one large forward takes at its peak."""
    torch.set_num_threads(1)
    backend = HfBackend()
    backend.load(EngineOptions(model=folder, device="cpu", plain_engine=True), folder, quiet)
    ids = [i * 7919 % 16_384 for i in range(LENGTH)]
    cache = backend.new_cache("none")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = memory("VmRSS")
    if what == "naive":
        backend.forward(ids, cache)
    else:
        backend.score(ids, cache, ids[1:])
    rows = 1 if what == "naive" else LENGTH
    foreseen = scratch_bytes(backend._model.config, 2, LENGTH, rows)
    print(json.dumps([memory("VmHWM") - before, foreseen]))


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("llama", "naive"),
        ("qwen3_5", "score"),
        pytest.param("llama", "score", marks=pytest.mark.soak),
        pytest.param("gemma3", "naive", marks=pytest.mark.soak),
        pytest.param("gemma3", "score", marks=pytest.mark.soak),
        pytest.param("qwen3_5", "naive", marks=pytest.mark.soak),
    ],
)
def test_a_large_forward_takes_no_more_than_was_foreseen(
    tmp_path: Path, kind: str, what: str
) -> None:
    save(tmp_path, kind)
    call = f"from tests.worker import test_sizes as s; s.take({str(tmp_path)!r}, {what!r})"
    # A freed tensor goes back to the system at once, so that the peak is one of tensors and not of
    # what the allocator keeps of them, which differs by tens of megabytes from run to run.
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(64 * 1024)}
    said = subprocess.check_output([sys.executable, "-c", call], text=True, env=env)
    taken, foreseen = json.loads(said)
    assert taken <= foreseen <= 3 * taken, (taken, foreseen)


def test_the_least_that_the_large_model_needs_beside_its_weights() -> None:
    """Qwen3.6-27B: 256 positions of 64 KiB, some 147 MiB of states, a chunk and rows of logits."""
    config = t.Qwen3_5TextConfig(
        hidden_size=5120,
        intermediate_size=17_408,
        num_hidden_layers=64,
        num_attention_heads=24,
        num_key_value_heads=4,
        linear_num_value_heads=48,
    )
    kinds = config.layer_types
    assert position_bytes(config, kinds, 2) == 65_536
    assert 145 * 2**20 < bounded_bytes(config, kinds, 2) < 155 * 2**20
    assert 0.3e9 < beside_weights(config, kinds, 2) < 1.0e9
