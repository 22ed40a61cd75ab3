"""Engines and sessions for benchmarks, each step of theirs timed on its own.

Every contender is a function that makes a block of steps and gives their milliseconds, so that
blocks of all of them alternate: what else the machine does then falls on each alike.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from operator import truediv
from pathlib import Path
from typing import Any

import torch

from engine_daemon.paths import paths_for
from engine_daemon.protocol.codec import pack_event
from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.values import Sampler
from engine_daemon.protocol.worker import EngineOptions, EventOut, Go, OpenSession, Seen
from engine_daemon.worker.backends import locate
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.budget import limit_of
from engine_daemon.worker.decode import DecodeSession
from engine_daemon.worker.engine import Engine
from engine_daemon.worker.outcomes import Append, Prediction
from engine_daemon.worker.probe import RowDistribution
from engine_daemon.worker.pulse import Pulse
from engine_daemon.worker.told import predicted, stepped
from engine_daemon.worker.turns import Turns
from tests.bench.table import median

PROMPT = [59, 23385, 37491, 27781, 359, 13831, 411, 260]
BLOCK = 8
"""Steps of one contender before the next one's turn."""

Block = Callable[[], list[float]]


def alternated(contenders: Mapping[str, Block], rounds: int) -> dict[str, float]:
    """Medians over every step of every round but the first, which warms up."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, block in contenders.items():
            made = block()
            if turn:
                times[name] += made
    return {name: median(values) for name, values in times.items()}


def quotients(contenders: Mapping[str, Block], rounds: int) -> Callable[[str, str], float]:
    """How many times as long one takes as another: median over rounds of the quotient of their
    blocks' medians. Neighbours in time share what the machine does, which differs by tens of
    percent within a minute; the order within a round is drawn."""
    order, shuffled = list(contenders), random.Random(1)
    made: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        shuffled.shuffle(order)
        for name in order:
            block = median(contenders[name]())
            if turn:
                made[name].append(block)
    return lambda one, other: median(list(map(truediv, made[one], made[other])))


def load(folder: Path | None = None, *, plain: bool, dtype: Any = "bf16") -> Engine:
    """An engine on the CPU, of the demo model unless there is a folder."""
    backend = HfBackend()
    name = EngineOptions().model if folder is None else str(folder)
    options = EngineOptions(
        model=name,
        device="cpu",
        dtype=dtype,
        cache_dir=str(paths_for().cache),
        plain_engine=plain,
    )
    loaded = backend.load(options, locate(options, lambda *_: None), lambda *_: None)
    size = loaded.model.vocabulary
    table = PieceTable("bench", [b" token%d" % i for i in range(size)], [False] * size)
    return Engine(backend, loaded, table)


def backend_of(engine: Engine) -> HfBackend:
    """The backend that `load` made."""
    assert isinstance(engine.backend, HfBackend)
    return engine.backend


def order(candidates: int = 20, prompt: list[int] = PROMPT) -> OpenSession:
    """An open order of a greedy session."""
    return OpenSession(
        session="BENCH000",
        branch=0,
        prompt_ids=pack_ints("I", prompt),
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


class Stepping:
    """A session of ours that makes steps, each with its two events packed."""

    def __init__(self, engine: Engine, candidates: int = 20) -> None:
        self.session = DecodeSession(engine, order(candidates, [x % 100 for x in PROMPT]))
        self._loop = self.session.steps()
        self.read()

    def read(self) -> None:
        """Up to the next distribution."""
        told = next(self._loop)
        assert isinstance(told, Prediction)
        pack_event(predicted(0, told, None))

    def step(self) -> None:
        """Pick, append, and the forward of the next distribution."""
        told = self._loop.send(None)
        assert isinstance(told, Append)
        pack_event(stepped(0, told, told.stop, None))
        self.read()

    def again(self) -> None:
        """After the session was moved: the distribution where it stands."""
        self._loop = self.session.steps()
        self.read()


class Running:
    """A session that runs as in the worker: budget, turns, pulse, events packed for the hub."""

    def __init__(self, engine: Engine, candidates: int = 20) -> None:
        engine = replace(engine, cache_bytes=limit_of(None, engine.backend))
        self._sent = 0
        self._turns = Turns(engine, self._take, list, during=Pulse(0).during)
        opening = order(candidates, [x % 100 for x in PROMPT])
        self._session = opening.session
        self._turns.handle(opening)
        self._turns.turn()

    def _take(self, _: EventOut) -> None:
        self._sent += 1

    def _step(self) -> float:
        self._turns.handle(Seen(session=self._session, next=self._sent))
        while not self._turns.ready():  # at the beginning, and where an end token stopped it
            self._turns.handle(Go(session=self._session, step=None, cause=None))
            self._turns.turn()
            self._turns.handle(Seen(session=self._session, next=self._sent))
        return timed(self._turns.turn)

    def block(self) -> list[float]:
        """See the module."""
        return [self._step() for _ in range(BLOCK)]


def bare(engine: Engine) -> Block:
    """Forward and argmax, nothing else."""
    backend = backend_of(engine)
    cache = backend.new_cache("kv")

    def run() -> Iterator[float]:
        row: Any = backend.forward(PROMPT, cache).distribution
        while True:
            begin = time.perf_counter()
            row = backend.forward([int(row.logits.argmax())], cache).distribution
            assert isinstance(row, RowDistribution)
            yield (time.perf_counter() - begin) * 1000

    steps = run()
    return lambda: [next(steps) for _ in range(BLOCK)]


def generate(engine: Engine) -> Block:
    """Transformers' own loop: the time from one token to the next."""
    model = backend_of(engine)._model
    ids = torch.tensor([PROMPT])
    stamps: list[float] = []

    def stamp(_: Any, scores: torch.Tensor) -> torch.Tensor:
        stamps.append(time.perf_counter())
        return scores

    def block() -> list[float]:
        stamps.clear()
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=BLOCK + 2,
            min_new_tokens=BLOCK + 2,
            do_sample=False,
            pad_token_id=0,
            logits_processor=[stamp],
        )
        # The first interval holds what the prompt's forward left to do.
        return [(after - before) * 1000 for before, after in pairwise(stamps[1:])]

    return block


def after(engine: Engine, length: int) -> Block:
    """Forwards of one id after `length` positions, whose keys and values are noise."""
    backend = backend_of(engine)
    cache = backend.new_cache("kv")
    backend.forward([5], cache)
    for layer in cache.layers.growing():
        heads, size = layer.keys.shape[1], layer.keys.shape[-1]
        noise = torch.randn(2, 1, heads, length - 1, size, dtype=layer.keys.dtype)
        with torch.inference_mode():
            layer.put(1, noise[0], noise[1])
    cache.tokens, cache.ids = length, [5] * length
    return lambda: [backend.forward([5], cache).ms for _ in range(BLOCK // 2)]


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) * 1000
