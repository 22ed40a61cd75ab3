"""Steps over buffers that stay where they are: the numbers are a fresh forward's.

Recording them needs a GPU (`tests/gpu/check.py`); what is recorded is the same function on a CPU.
"""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.caches import HfCache
from engine_daemon.worker.fast.graphs import Graphs, StaticStep, agrees, graphs_of
from engine_daemon.worker.probe import RowDistribution
from tests.worker.checkpoints import VOCABULARY, quiet, save_tiny, tiny_model

pytestmark = pytest.mark.engine
KINDS = ("llama", "qwen3", "qwen3_moe", "qwen3_5")
"""All that keep everything where it is; a sliding window does not."""


class Run:
    """In the place of a graph: the same function, run anew each time."""

    made = 0

    def __init__(self, step: StaticStep, token_id: int, position: int) -> None:
        type(self).made += 1
        self._step = step
        states = step.states()
        self.run(token_id, position)  # recording runs it, too
        step.put_states(states)

    def run(self, token_id: int, position: int) -> Tensor:
        self._step.token.fill_(token_id)
        self._step.position.fill_(position)
        return self._step.compute().clone()


class Fails:
    """What cannot be recorded."""

    def __init__(self, step: StaticStep, token_id: int, position: int) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    def run(self, token_id: int, position: int) -> Tensor:
        raise NotImplementedError


def backend_of(folder: Path, kind: str, record: Any = Run, **options: Any) -> HfBackend:
    """A plain engine with `record` in the place of CUDA graphs."""
    backend = HfBackend()
    asked = EngineOptions(model=str(folder), device="cpu", plain_engine=True, **options)
    backend.load(asked, str(save_tiny(folder, kind)), quiet)
    backend._graphs = Graphs(backend._model, record)
    Run.made = 0
    return backend


def row(backend: HfBackend, ids: list[int], cache: HfCache) -> Tensor:
    distribution = backend.forward(ids, cache).distribution
    assert isinstance(distribution, RowDistribution)
    return distribution.row


def same(ours: Tensor, theirs: Tensor) -> bool:
    return bool((ours - theirs).abs().max() <= 1e-4 * theirs.abs().max())


def fresh(model: Any, ids: list[int]) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = model(torch.tensor([ids]), use_cache=False).logits[0, -1].float()
    return logits


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_those_of_a_fresh_forward(tmp_path: Path, kind: str) -> None:
    """Past the buffers' first growth, back by a crop or a snapshot, and on another way."""
    backend, model = backend_of(tmp_path, kind), tiny_model(kind)
    cache = backend.new_cache("kv")
    ids = [(7 * i + 3) % VOCABULARY for i in range(240)]
    backend.forward(ids, cache)
    for step in range(30):
        ids.append((5 * step + 1) % VOCABULARY)
        made = row(backend, ids[-1:], cache)
        assert cache.tokens == len(ids)
        if step % 5 == 0 or 14 <= step <= 18:
            assert same(made, fresh(model, ids)), step
    assert Run.made == 2  # 256 and 512 positions
    ids = [*ids[:250], 9, 8]
    at = cache.go_back(ids[:-1]).position
    for token in ids[at:-1]:
        backend.forward([token], cache)
    assert same(row(backend, ids[-1:], cache), fresh(model, ids))
    report = cache.report(None)
    assert report.tokens == len(ids)
    assert (report.growing_bytes or 0) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_two_sessions_do_not_know_each_other(tmp_path: Path, kind: str) -> None:
    backend, model = backend_of(tmp_path, kind), tiny_model(kind)
    one, other = backend.new_cache("kv"), backend.new_cache("kv")
    backend.forward([3, 4, 5], one)
    backend.forward([60, 61], other)
    for token in (7, 8, 9):
        row(backend, [token], one)
        kept = row(backend, [token + 20], other)
    copy = kept.clone()
    assert same(row(backend, [1], one), fresh(model, [3, 4, 5, 7, 8, 9, 1]))
    assert same(row(backend, [1], other), fresh(model, [60, 61, 27, 28, 29, 1]))
    assert torch.equal(kept, copy)


def test_the_trial_at_load_finds_out_what_differs(tmp_path: Path) -> None:
    model = tiny_model("qwen3_5")
    assert agrees(Graphs(model, Run), model)
    assert not agrees(Graphs(tiny_model("gemma3"), Run), tiny_model("gemma3"))
    assert not agrees(Graphs(model, Fails), model)

    class Differs(Run):
        def run(self, token_id: int, position: int) -> Tensor:
            return super().run(token_id, position + 1)

    assert not agrees(Graphs(model, Differs), model)
    assert graphs_of(model) is None  # no GPU


@pytest.mark.parametrize("kind", ["llama", "qwen3_5"])
def test_what_cannot_be_recorded_goes_the_plain_way_for_good(tmp_path: Path, kind: str) -> None:
    backend, model = backend_of(tmp_path, kind, Fails), tiny_model(kind)
    cache = backend.new_cache("kv")
    ids = [3, 4, 5]
    backend.forward(ids, cache)
    for token in (7, 8):
        ids.append(token)
        assert same(row(backend, [token], cache), fresh(model, ids))
    assert backend._graphs is not None
    assert not backend._graphs.takes(cache.layers.layers)


def test_graphs_are_few_and_hold_no_cache(tmp_path: Path) -> None:
    """A graph knows where buffers are; it does not keep them."""

    backend = backend_of(tmp_path, "llama", _light)
    graphs = backend._graphs
    assert graphs is not None
    caches = [backend.new_cache("kv") for _ in range(12)]
    for cache in caches:
        backend.forward([1, 2], cache)
        backend.forward([3], cache)
    assert len(graphs._made) == 8
    buffer = weakref.ref(caches[-1].layers.growing()[0].keys)
    for cache in caches:
        cache.free()
    gc.collect()
    assert buffer() is None


def _light(step: StaticStep, token_id: int, position: int) -> Any:
    """As `Recorded`: of the step it keeps the numbers that are set, and a result."""
    logits = Run(step, token_id, position).run(token_id, position)

    class Kept:
        def run(self, token_id: int, position: int) -> Tensor:
            return logits

    return Kept()
