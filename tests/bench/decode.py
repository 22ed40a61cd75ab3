"""A step of ours against the bare loop, `generate` and the memory floor, in one run."""

import time
from collections.abc import Callable
from typing import Any

import torch

from engine_daemon.paths import paths_for
from engine_daemon.protocol.codec import pack_event
from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.values import Sampler
from engine_daemon.protocol.worker import EngineOptions, OpenSession
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.decode import DecodeSession, Engine
from engine_daemon.worker.outcomes import Append, Prediction
from engine_daemon.worker.told import predicted, stepped
from tests.bench.table import Row, median

PROMPT = [59, 23385, 37491, 27781, 359, 13831, 411, 260]
STEPS = 48
ROUNDS = 7


def run() -> list[Row]:
    """Alternates the contenders `ROUNDS` times; medians of milliseconds a token."""
    backend, engine = _load()
    contenders: dict[str, Callable[[], float]] = {
        "generate": lambda: _generate(backend),
        "bare": lambda: _bare(backend),
        "ours": lambda: _ours(engine, looking=True),
        "ours, not looking": lambda: _ours(engine, looking=False),
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(ROUNDS + 1):
        for name, work in contenders.items():
            ms = work()
            if turn:  # the first turn warms up
                times[name].append(ms)
    medians = {name: median(values) for name, values in times.items()}
    floor = _floor_ms(backend)
    return [
        Row("memory floor: weight bytes ÷ read bandwidth", f"{floor:.1f} ms"),
        Row("transformers.generate, a token", f"{medians['generate']:.2f} ms"),
        Row("bare loop (forward + argmax), a token", f"{medians['bare']:.2f} ms"),
        Row("our step, everything reported and packed", f"{medians['ours']:.2f} ms"),
        _ratio("our step ÷ bare loop", medians["ours"], medians["bare"], 1.02),
        _ratio("our step ÷ generate", medians["ours"], medians["generate"], 1.00),
        _ratio("our step ÷ memory floor", medians["ours"], floor, None),
    ]


def _ratio(name: str, value: float, reference: float, goal: float | None) -> Row:
    ratio = value / reference
    if goal is None:
        return Row(name, f"{ratio:.2f}")
    return Row(name, f"{ratio:.3f}", f"≤ {goal:.2f}", ratio <= goal)


def _load() -> tuple[HfBackend, Engine]:
    backend = HfBackend()
    options = EngineOptions(dtype="bf16", cache_dir=str(paths_for().cache))
    folder = backend.locate(options, lambda *_: None)
    loaded = backend.load(options, folder, lambda *_: None)
    size = loaded.model.vocabulary
    table = PieceTable("bench", [b" token%d" % i for i in range(size)], [False] * size)
    return backend, Engine(backend, loaded, table)


def _order(candidates: int = 20) -> OpenSession:
    return OpenSession(
        session="BENCH000",
        branch=0,
        prompt_ids=pack_ints("I", PROMPT),
        ids=b"",
        sampler=Sampler(),
        salt=0,
        candidates=candidates,
        cache_mode="kv",
        limit_tokens=None,
        max_steps=None,
        tokenize_ms=0.1,
        restored=False,
    )


def _ours(engine: Engine, *, looking: bool) -> float:
    """Milliseconds a step, from the second forward on, with its two events packed."""
    session = DecodeSession(engine, _order(20 if looking else 1))
    loop = session.steps()
    told = next(loop)
    begin = 0.0
    for step in range(STEPS + 1):
        if step == 1:
            begin = time.perf_counter()
        told = loop.send(None)
        assert isinstance(told, Append)
        pack_event(stepped(0, told, told.stop, None))
        told = next(loop)
        assert isinstance(told, Prediction)
        pack_event(predicted(0, told, None))
    took = time.perf_counter() - begin
    session.give_back()
    return took / STEPS * 1000


def _bare(backend: HfBackend) -> float:
    cache = backend.new_cache("kv")
    row: Any = backend.forward(PROMPT, cache).distribution
    begin = 0.0
    for step in range(STEPS + 1):
        if step == 1:
            begin = time.perf_counter()
        row = backend.forward([int(row.logits.argmax())], cache).distribution
    took = time.perf_counter() - begin
    cache.free()
    return took / STEPS * 1000


def _generate(backend: HfBackend) -> float:
    """By the difference of two lengths, so that the prefill does not count."""
    ids = torch.tensor([PROMPT])
    times = []
    for count in (1, STEPS + 1):
        begin = time.perf_counter()
        backend._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
        )
        times.append(time.perf_counter() - begin)
    return (times[1] - times[0]) / STEPS * 1000


def _floor_ms(backend: HfBackend) -> float:
    """Reading the weights once at the bandwidth that a sum over a large buffer reaches."""
    buffer = torch.ones(256 * 1024 * 1024 // 4)
    best = min(_timed(buffer.sum) for _ in range(10))
    bandwidth = buffer.nbytes / best
    weights = sum(int(p.nbytes) for p in backend._model.parameters())
    return weights / bandwidth * 1000


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
