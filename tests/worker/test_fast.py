"""The fast engine path: equal numbers, every part where it can be and nowhere else."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.fast import attention, linear
from engine_daemon.worker.fast.engine import speed_up
from engine_daemon.worker.probe import RowDistribution
from tests.worker.checkpoints import KINDS, VOCABULARY, demo_model, quiet, save_tiny, tiny_model

pytestmark = pytest.mark.engine
needs_bf16 = pytest.mark.skipif(not linear.supported(), reason="no bf16 products on this CPU")
PROMPT = [(7 * i + 3) % VOCABULARY for i in range(21)]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rows_of(model: Any, ids: list[int], steps: int) -> list[torch.Tensor]:
    """All logits of a prefill, then of single steps with the library's own cache."""
    with torch.inference_mode():
        out = model(torch.tensor([ids]), use_cache=True)
        rows, cache = [out.logits[0]], out.cache
        for step in range(steps):
            out = model(torch.tensor([[(5 * step + 1) % VOCABULARY]]), cache=cache, use_cache=True)
            rows.append(out.logits[0])
    return rows


def only_linear(model: Any) -> str:
    """The fast path without our attention, whose sums go in another order."""
    before = model.config._attn_implementation
    path = speed_up(model, None)
    model.set_attn_implementation(before)
    return path


@needs_bf16
@pytest.mark.parametrize("kind", KINDS)
def test_packed_weights_give_the_same_bits(kind: str) -> None:
    plain, packed = tiny_model(kind).bfloat16(), tiny_model(kind).bfloat16()
    path = "packed" if kind == "qwen3_moe" else "packed+joined"  # it has experts where others join
    assert path in only_linear(packed)
    for ours, theirs in zip(rows_of(packed, PROMPT, 12), rows_of(plain, PROMPT, 12), strict=True):
        assert torch.equal(ours, theirs)


@needs_bf16
@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_what_is_computed_with(kind: str) -> None:
    model = tiny_model(kind).bfloat16()
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    only_linear(model)
    after = dict(linear.named_weights(model))
    tied = set(after) - set(before)
    assert tied <= {"lm_head.weight"}
    assert set(before) <= set(after)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


@needs_bf16
def test_originals_are_let_go() -> None:
    model = tiny_model("llama").bfloat16()
    weight = model.model.layers[0].mlp.gate_proj.weight
    only_linear(model)
    assert all(weight is not x for x in model.parameters())
    assert not any(linear.packable(x) for x in model.modules())


@needs_bf16
def test_a_tied_head_stays_where_memory_is_short() -> None:
    model = tiny_model("gemma3").bfloat16()
    assert model.lm_head.weight is model.model.embed_tokens.weight
    speed_up(model, model.lm_head.weight.nbytes)
    assert type(model.lm_head) is nn.Linear
    assert isinstance(model.model.layers[0].mlp.down_proj, linear.PackedLinear)


def test_other_layers_stay_as_they_are() -> None:
    class Own(nn.Linear):
        """A subclass computes something of its own."""

    assert not linear.packable(Own(80, 80, dtype=torch.bfloat16))
    assert not linear.packable(nn.Linear(4, 4, dtype=torch.bfloat16))
    assert not linear.packable(nn.Linear(80, 80))
    assert not linear.packable(None)
    assert not linear.joinable([nn.Linear(4, 4, dtype=torch.bfloat16), nn.Linear(4, 4)])


@needs_bf16
def test_a_joined_part_looks_at_its_input() -> None:
    """In any order, twice, or with another input: always what the plain layer gives."""
    torch.manual_seed(1)
    holder = nn.Module()
    for name, width in (("a", 80), ("b", 96)):
        setattr(holder, name, nn.Linear(64, width, dtype=torch.bfloat16))
    plain = {name: child for name, child in holder.named_children()}
    linear.pack(holder, ["a", "b"])
    one, two = torch.randn(2, 3, 64, dtype=torch.bfloat16)
    with torch.inference_mode():
        for name, given in [("a", one), ("a", one), ("b", two), ("b", one), ("a", one), ("a", two)]:
            assert torch.equal(getattr(holder, name)(given), plain[name](given)), name


@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2), (9, 3), (8, 1)])
def test_one_query_against_the_library(heads: int, groups: int) -> None:
    torch.manual_seed(heads)
    buffer = torch.randn(2, 1, groups, 256, 16)
    keys, values = buffer[0][..., :37, :], buffer[1][..., :37, :]
    query = torch.randn(1, heads, 1, 16)
    module = nn.Module()
    module.num_key_value_groups = heads // groups  # type: ignore[assignment]  # as models do
    ours = attention.attention(module, query, keys, values, None, scaling=0.3)[0]
    wide = [x.repeat_interleave(heads // groups, 1)[0] for x in (keys, values)]
    weights = torch.softmax(query[0] @ wide[0].transpose(1, 2) * 0.3, -1)
    expected = (weights @ wide[1]).transpose(0, 1)[None]
    assert ours.shape == expected.shape
    assert torch.allclose(ours, expected, atol=1e-6)


def test_a_mask_goes_to_the_library() -> None:
    torch.manual_seed(2)
    query, keys, values = torch.randn(3, 1, 2, 5, 8)
    mask = torch.tensor([True, False, True, True, False])[None, None, None]
    ours = attention.attention(nn.Module(), query[..., :1, :], keys, values, mask)[0]
    shown = keys[..., mask[0, 0, 0], :], values[..., mask[0, 0, 0], :]
    theirs = torch.nn.functional.scaled_dot_product_attention(query[..., :1, :], *shown)
    assert torch.allclose(ours, theirs.transpose(1, 2), atol=1e-6)


@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (6, 2)])
@pytest.mark.parametrize("used", [1500, 2048])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_query_over_whole_buffers(
    heads: int, groups: int, used: int, dtype: torch.dtype
) -> None:
    """What lies beyond the used positions has no part in it."""
    torch.manual_seed(used)
    keys, values = torch.randn(2, 1, groups, 2048, 16, dtype=dtype)
    keys[..., used:, :] = math.nan
    values[..., used:, :] = 1000.0
    query = torch.randn(1, groups, heads // groups, 16, dtype=dtype)
    ours = attention.over_buffers(query, keys, values, used, 0.3).view(query.shape)
    shown = keys[..., :used, :].double(), values[..., :used, :].double()
    expected = nn.functional.scaled_dot_product_attention(query.double(), *shown, scale=0.3)
    tolerance = 1e-6 if dtype is torch.float32 else 5e-3
    assert torch.allclose(ours.double(), expected, atol=tolerance)


def load(folder: Path, **options: Any) -> tuple[HfBackend, Any]:
    backend = HfBackend()
    asked = EngineOptions(model=str(folder), device="cpu", **options)
    return backend, backend.load(asked, str(folder), quiet).model


@pytest.mark.parametrize("kind", KINDS)
def test_bf16_steps_stay_within_the_tolerance(tmp_path: Path, kind: str) -> None:
    """|Δp| ≤ 0.06 against the plain engine, over steps past windows and a doubling."""
    folder = save_tiny(tmp_path / kind, kind)
    backends = [load(folder, dtype="bf16", plain_engine=x) for x in (False, True)]
    assert backends[1][1].engine_path == "plain"
    direct = kind in ("llama", "qwen3")
    assert backends[0][1].engine_path.endswith(
        ("direct", "direct+streamed") if direct else "attention"
    )
    assert backends[0][1].weights_bytes == backends[1][1].weights_bytes
    assert backends[0][1].parameters == backends[1][1].parameters
    worst = 0.0
    caches = [backend.new_cache("kv") for backend, _ in backends]
    for step in range(40):
        ids = PROMPT if step == 0 else [(11 * step + 5) % VOCABULARY]
        rows = []
        for (backend, _), cache in zip(backends, caches, strict=True):
            row = backend.forward(ids, cache).distribution
            assert isinstance(row, RowDistribution)
            rows.append(torch.softmax(row.row, -1))
        worst = max(worst, float((rows[0] - rows[1]).abs().max()))
    assert worst <= 0.06


@needs_bf16
def test_the_demo_model_gives_the_same_bits() -> None:
    from transformers import AutoModelForCausalLM

    made = [
        AutoModelForCausalLM.from_pretrained(demo_model(), dtype=torch.bfloat16).eval()
        for _ in range(2)
    ]
    ids = [59, 23385, 37491, 27781, 359, 13831, 411, 260]
    only_linear(made[0])
    for ours, theirs in zip(rows_of(made[0], ids, 4), rows_of(made[1], ids, 4), strict=True):
        assert torch.equal(ours, theirs)
