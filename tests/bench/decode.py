"""A step of ours, fast and plain, against `generate` and the memory floor, in one run."""

import time
from collections.abc import Callable, Mapping
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
from engine_daemon.worker.probe import RowDistribution
from engine_daemon.worker.told import predicted, stepped
from tests.bench.table import Row, median

PROMPT = [59, 23385, 37491, 27781, 359, 13831, 411, 260]
STEPS = 48
ROUNDS = 5
VOCABULARY = 248_320
LONG = 4096


def run() -> list[Row]:
    """Alternates the contenders `ROUNDS` times; medians of milliseconds a token."""
    backend, engine = _load(plain=False)
    plain, plain_engine = _load(plain=True)
    contenders: dict[str, Callable[[], float]] = {
        "generate": lambda: _generate(plain),
        "bare": lambda: _bare(backend),
        "ours": lambda: _ours(engine, looking=True),
        "ours, not looking": lambda: _ours(engine, looking=False),
        "plain engine": lambda: _ours(plain_engine, looking=True),
        "at 4096": lambda: _long(backend),
        "plain at 4096": lambda: _long(plain),
    }
    medians = _alternated(contenders)
    floor = _floor_ms(backend)
    at = {name: medians[name] for name in ("at 4096", "plain at 4096")}
    return [
        Row("engine path", engine.loaded.model.engine_path),
        Row("memory floor: weight bytes ÷ read bandwidth", f"{floor:.1f} ms"),
        Row("transformers.generate, a token", f"{medians['generate']:.2f} ms"),
        Row("bare loop (forward + argmax), a token", f"{medians['bare']:.2f} ms"),
        Row("our step, everything reported and packed", f"{medians['ours']:.2f} ms"),
        Row("the same with --plain-engine", f"{medians['plain engine']:.2f} ms"),
        _ratio("our step ÷ bare loop", medians["ours"], medians["bare"], 1.02),
        _ratio("our step ÷ the same, one candidate", *_pair(medians), 1.02),
        _ratio("our step ÷ generate", medians["ours"], medians["generate"], 0.60),
        _ratio("our step ÷ memory floor", medians["ours"], floor, 1.90),
        _extra("forward at n=4096 minus n=64", at["at 4096"] - medians["bare"], 8.0),
        Row("forward at n=4096, fast · plain", " · ".join(f"{x:.1f} ms" for x in at.values())),
        *_large_vocabulary(),
    ]


def _alternated(contenders: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(ROUNDS + 1):
        for name, work in contenders.items():
            ms = work()
            if turn:  # the first turn warms up
                times[name].append(ms)
    return {name: median(values) for name, values in times.items()}


def _pair(medians: dict[str, float]) -> tuple[float, float]:
    return medians["ours"], medians["ours, not looking"]


def _extra(name: str, ms: float, goal: float) -> Row:
    return Row(name, f"{ms:.2f} ms", f"≤ {goal:.1f} ms", ms <= goal)


def _large_vocabulary() -> list[Row]:
    """Looking at one row of 248,320 logits in bf16: the report, and a sampler on top."""
    row = (torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(1)) * 3).bfloat16()
    scratch = torch.empty(2, VOCABULARY)

    def look(sampler: Sampler) -> float:
        begin = time.perf_counter()
        distribution = RowDistribution(row, scratch)
        distribution.kept()
        evaluation = distribution.evaluate(sampler, [])
        evaluation.report(20)
        evaluation.pick(0.5)
        return (time.perf_counter() - begin) * 1000

    samplers = {
        "top-20, entropy, row copy": (Sampler(), 1.0),
        "the same with top-p 0.9": (Sampler(greedy=False, temperature=0.5, top_p=0.9), 1.5),
        "the same with top-p 0.9, wide": (Sampler(greedy=False, top_p=0.9), 1.5),
    }
    contenders = {
        name: (lambda s=sampler: median([look(s) for _ in range(20)]))
        for name, (sampler, _) in samplers.items()
    }
    medians = _alternated(contenders)
    return [
        _extra(f"vocabulary 248,320: {name}", medians[name], goal)
        for name, (_, goal) in samplers.items()
    ]


def _ratio(name: str, value: float, reference: float, goal: float | None) -> Row:
    ratio = value / reference
    if goal is None:
        return Row(name, f"{ratio:.2f}")
    return Row(name, f"{ratio:.3f}", f"≤ {goal:.2f}", ratio <= goal)


def _load(*, plain: bool) -> tuple[HfBackend, Engine]:
    backend = HfBackend()
    options = EngineOptions(
        device="cpu", dtype="bf16", cache_dir=str(paths_for().cache), plain_engine=plain
    )
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


def _long(backend: HfBackend) -> float:
    """A forward of one id after 4096 positions, whose keys and values are noise."""
    cache = backend.new_cache("kv")
    backend.forward([5], cache)
    for layer in cache.layers.growing():
        heads, size = layer.keys.shape[1], layer.keys.shape[-1]
        noise = torch.randn(2, 1, heads, LONG - 1, size, dtype=layer.keys.dtype)
        layer.put(1, noise[0], noise[1])
    cache.tokens, cache.ids = LONG, [5] * LONG
    times = [backend.forward([5], cache).ms for _ in range(9)]
    cache.free()
    return median(times)


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
    weights = backend._weights_bytes
    return weights / bandwidth * 1000


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
