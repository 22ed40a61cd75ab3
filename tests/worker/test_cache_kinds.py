"""Bytes by kind of layer from the tensors, against each architecture's formula."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t

from engine_daemon.protocol.values import CacheKind, CacheReport
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.backends.hf import HfBackend
from tests.worker.checkpoints import quiet, save_tiny, save_tokenizer

pytestmark = pytest.mark.engine
FP32 = 4
IDS = [(7 * i + 3) % 128 for i in range(300)]


def held(folder: Path, count: int, **options: Any) -> CacheReport:
    """What the cache holds after reading `count` tokens, the last two of them one by one."""
    return holding(loaded(folder, **options), count)


def loaded(folder: Path, **options: Any) -> HfBackend:
    backend = HfBackend()
    asked = EngineOptions(model=str(folder), device="cpu", **options)
    backend.load(asked, str(folder), quiet)
    return backend


def holding(backend: HfBackend, count: int) -> CacheReport:
    """`held`, of a model that is loaded."""
    cache = backend.new_cache("kv")
    backend.forward(IDS[: count - 2], cache)
    backend.forward(IDS[count - 2 : count - 1], cache)
    backend.forward(IDS[count - 1 : count], cache)
    return cache.report(None)


def kinds(report: CacheReport) -> dict[str, CacheKind]:
    assert report.kinds is not None
    assert sum(kind.bytes for kind in report.kinds) == (report.growing_bytes or 0) + (
        report.fixed_bytes or 0
    )
    return {kind.kind: kind for kind in report.kinds}


@pytest.mark.parametrize(("kind", "size"), [("llama", 16), ("qwen3", 32)])
@pytest.mark.parametrize("count", [9, 280])
def test_full_attention_is_two_times_heads_times_size_a_token(
    tmp_path: Path, kind: str, size: int, count: int
) -> None:
    report = held(save_tiny(tmp_path, kind), count)
    formula = 3 * 2 * 2 * size * FP32 * count
    expected = CacheKind(kind="full_attention", layers=3, bytes=formula, growth="growing")
    assert report.kinds == [expected]
    assert (report.growing_bytes, report.fixed_bytes) == (formula, 0)
    assert (report.device_used_bytes, report.device_total_bytes) == (None, None)


@pytest.mark.parametrize(("count", "window"), [(5, 5), (7, 7), (8, 7), (40, 7), (280, 7)])
def test_a_window_of_eight_holds_seven_and_no_more(tmp_path: Path, count: int, window: int) -> None:
    found = kinds(held(save_tiny(tmp_path, "gemma3"), count))
    position = 2 * 2 * 16 * FP32
    assert found["sliding_attention"] == CacheKind(
        kind="sliding_attention", layers=2, bytes=2 * position * window, growth="bounded"
    )
    assert found["full_attention"] == CacheKind(
        kind="full_attention", layers=1, bytes=position * count, growth="growing"
    )


@pytest.mark.parametrize("count", [9, 280])
def test_a_hybrids_states_are_fixed(tmp_path: Path, count: int) -> None:
    found = kinds(held(save_tiny(tmp_path, "qwen3_5"), count))
    assert found["full_attention"].bytes == 1 * 2 * 2 * 32 * FP32 * count
    assert (found["recurrent"].bytes, found["recurrent"].layers) == (3 * 4 * 16 * 16 * FP32, 3)
    channels = 2 * 2 * 16 + 4 * 16  # keys, queries and values
    assert found["convolution"].bytes == 3 * channels * 4 * FP32
    assert {found["recurrent"].growth, found["convolution"].growth} == {"fixed"}


def test_without_a_cache_there_are_no_kinds(tmp_path: Path) -> None:
    backend = HfBackend()
    folder = save_tiny(tmp_path, "llama")
    backend.load(EngineOptions(model=str(folder), device="cpu"), str(folder), quiet)
    cache = backend.new_cache("none")
    backend.forward(IDS[:9], cache)
    report = cache.report(None)
    assert (report.kinds, report.growing_bytes, report.allocated_bytes) == (None, 0, 0)


def test_the_shape_of_qwen36_holds_64_kib_a_token_and_147_mib_fixed(tmp_path: Path) -> None:
    """64 layers of which 16 are full attention, 4 KV heads of 256; 48 DeltaNet layers of 16 key
    and 48 value heads of 128. Everything a cache does not depend on is tiny.

    By hand, bf16: 16 x 2 x 4 x 256 x 2 B = 65 536 B a token. Recurrent 48 x 48 x 128 x 128 in fp32;
    convolution 48 x (2 x 16 x 128 + 48 x 128) channels x 4 in bf16.
    """
    config = t.Qwen3_5TextConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=64,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=256,
        linear_num_key_heads=16,
        linear_num_value_heads=48,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        max_position_embeddings=4096,
        dtype=torch.bfloat16,
    )
    with torch.no_grad():
        t.Qwen3_5ForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    backend = loaded(tmp_path)
    reports = [holding(backend, count) for count in (8, 20)]
    few, more = (kinds(report) for report in reports)
    assert [few["full_attention"].layers, few["recurrent"].layers] == [16, 48]
    assert few["full_attention"].bytes == 8 * 65_536
    assert more["full_attention"].bytes - few["full_attention"].bytes == 12 * 65_536
    assert few["recurrent"].bytes == more["recurrent"].bytes == 48 * 48 * 128 * 128 * 4
    assert few["convolution"].bytes == more["convolution"].bytes == 48 * 10_240 * 4 * 2
    assert 145 * 2**20 < (reports[0].fixed_bytes or 0) < 155 * 2**20
