"""The decode loop of one session: a generator that stops after every forward and every append.

Whoever drives it decides: one step, on and on, or not at all. Works with any backend; knows no
torch, no sockets and nothing of other sessions.
"""

import hashlib
import struct
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Literal

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.events import Phase
from engine_daemon.protocol.packing import pack_floats, pack_ints, unpack_ints
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.values import CacheReport, Candidates, Restored, Sampler, Work
from engine_daemon.protocol.worker import OpenSession
from engine_daemon.worker.backends.base import (
    Backend,
    Choice,
    Evaluation,
    Forward,
    Loaded,
    Report,
    ScoresPrompt,
    SessionCache,
)
from engine_daemon.worker.prefill import CHUNK, Chunk, PromptScores, Reading

OwnStop = Literal["eos", "length", "context"]
"""What ends a sequence by itself."""


def draw(seed: int, salt: int, step: int) -> float:
    """The uniform number of a step: a function of these three and of nothing that went before."""
    digest = hashlib.sha256(struct.pack("<QQQ", seed, salt, step)).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)


@dataclass(frozen=True, slots=True)
class Look:
    """A distribution under one sampler, as it is told. Naming candidates is a cost of looking."""

    evaluation: Evaluation
    report: Report
    candidates: Candidates
    evaluate_ms: float
    probe_ms: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """A distribution that exists and from which nothing is picked yet."""

    step: int
    phase: Phase
    position: int
    forward: Forward
    look: Look
    tokenize_ms: float
    waited_ms: float
    after_pause: bool
    cache: CacheReport
    work: Work
    restored: Restored | None


@dataclass(frozen=True, slots=True)
class Append:
    """A token that has become part of the sequence. `stop`: what this step ends by itself."""

    step: int
    choice: Choice
    piece: bytes
    special: bool
    pick_ms: float
    append_ms: float
    total_ms: float
    stop: OwnStop | None


@dataclass(frozen=True, slots=True)
class Engine:
    """What every session of a worker shares."""

    backend: Backend
    loaded: Loaded
    table: PieceTable


class DecodeSession:
    """One sequence, its cache and its sampler.

    `pending` is the prediction at the end of the sequence, if one exists; `ended` why the last
    step ended it. `waited_ms` and `after_pause` are the driver's, told with the next forward.
    `scores` are of the prompt, from when it is read to when the driver takes them.
    """

    def __init__(self, engine: Engine, order: OpenSession) -> None:
        model = engine.loaded.model
        self.id = order.session
        self.branch = order.branch
        self.sampler = order.sampler
        self.salt = order.salt
        self.path = unpack_ints("I", order.prompt_ids) + unpack_ints("I", order.ids)
        self.pending: Prediction | None = None
        self.ended: OwnStop | None = None
        self.waited_ms = 0.0
        self.after_pause = False
        self._engine = engine
        self._order = order
        self._first = len(order.prompt_ids) // 4
        self._eos = frozenset(engine.loaded.eos_ids)
        limits = [x for x in (order.limit_tokens, model.context_length) if x]
        self._room = min(limits, default=None)
        self._tokenize_ms = order.tokenize_ms
        self._restoring = order.restored
        self._cache: SessionCache | None = None
        self._held = 0
        self._reading: Reading | None = None
        self._scoring = PromptScores() if order.score else None
        self.scores: PromptScores | None = None

    @property
    def step(self) -> int:
        """The step whose token comes next."""
        return len(self.path) - self._first

    def knows(self, token_id: int) -> bool:
        """True when the model has such a token."""
        return 0 <= token_id < self._engine.loaded.model.vocabulary

    @property
    def reading(self) -> int | None:
        """Positions read of a sequence that is not read to its end; None when none is under way."""
        return self._held if self._reading is not None else None

    def steps(self) -> Generator[Prediction | Append | Chunk, int | None, None]:
        """Forward, append, forward … After a Prediction, send the id to force or None to pick.

        What is longer than a chunk is read in chunks, each but the last yielded as it is done.
        """
        while True:
            if self.pending is None:
                while self._chunked():
                    yield self._read_chunk()
                self.pending = self._read()
            forced = yield self.pending
            yield self._append(self.pending, forced)

    def resample(self, sampler: Sampler, salt: int) -> Prediction | None:
        """Another sampler from here on; the pending prediction under it, without a forward."""
        self.sampler, self.salt = sampler, salt
        if self.pending is not None:
            self.pending = replace(self.pending, look=self._look(self.pending.forward))
        return self.pending

    def give_back(self) -> None:
        """Free the cache; the next forward reads the whole sequence again."""
        if self._cache is not None:
            self._cache.free()
        self._cache = None
        self._held = 0
        self._reading = None
        if self._scoring is not None:
            self._scoring = PromptScores()
        self._restoring = self._restoring or self.step > 0

    def measure_naive(self, length: int) -> float:
        """Milliseconds of one forward without a cache over the first `length` tokens."""
        cache = self._engine.backend.new_cache("none")
        try:
            return self._engine.backend.forward(self.path[:length], cache).ms
        finally:
            cache.free()

    def _chunked(self) -> bool:
        """There is more to read than one turn takes. Without a cache nothing can be in parts."""
        return self._order.cache_mode == "kv" and len(self.path) - self._held > CHUNK

    def _read_chunk(self) -> Chunk:
        forward = self._forward(CHUNK)
        if self._reading is None:
            self._reading = Reading()
        waited_ms, self.waited_ms = self.waited_ms, 0.0
        self._reading.add(forward, waited_ms)
        return Chunk(self.step, self._held, len(self.path), forward.ms, waited_ms)

    def _forward(self, count: int) -> Forward:
        """Read the next `count` tokens, and how likely those of the prompt were if that is asked
        for."""
        backend, begin = self._engine.backend, self._held
        if self._cache is None:
            self._cache = backend.new_cache(self._order.cache_mode)
        ids = self.path[begin : begin + count]
        if self._scoring is None:
            forward = backend.forward(ids, self._cache)
        elif isinstance(backend, ScoresPrompt):
            targets = self.path[begin + 1 : min(begin + count + 1, self._first)]
            scored = backend.score(ids, self._cache, targets)
            self._scoring.add(scored.logprobs, scored.ranks)
            forward = scored.forward
        else:
            raise InspectError(
                f"the engine {backend.name} cannot score a prompt",
                exit_code=Exit.ENGINE,
                code="not_supported",
            )
        self._held += len(ids)
        return forward

    def _read(self) -> Prediction:
        backend = self._engine.backend
        phase: Phase = "decode" if self._held and self._reading is None else "prefill"
        forward = self._forward(len(self.path) - self._held)
        if self._reading is not None:
            forward = self._reading.whole(forward)
            self.waited_ms += self._reading.waited_ms
        assert self._cache is not None
        position = len(self.path)
        restored = Restored(method="prefill", replayed=forward.processed, ms=forward.ms)
        prediction = Prediction(
            step=self.step,
            phase=phase,
            position=position,
            forward=forward,
            look=self._look(forward),
            tokenize_ms=self._tokenize_ms,
            waited_ms=self.waited_ms,
            after_pause=self.after_pause,
            cache=self._cache.report(self._order.limit_tokens),
            work=backend.work(forward.processed, position),
            restored=restored if self._restoring else None,
        )
        self.scores, self._scoring, self._reading = self._scoring or self.scores, None, None
        self._tokenize_ms = self.waited_ms = 0.0
        self._restoring = self.after_pause = False
        self.ended = None
        return prediction

    def _look(self, forward: Forward) -> Look:
        started = time.monotonic_ns()
        evaluation = forward.distribution.evaluate(self.sampler, self.path)
        evaluated = time.monotonic_ns()
        report = evaluation.report(self._order.candidates)
        candidates = _named(report, self._engine.table)
        return Look(
            evaluation=evaluation,
            report=report,
            candidates=candidates,
            evaluate_ms=(evaluated - started) / 1e6,
            probe_ms=(time.monotonic_ns() - evaluated) / 1e6,
        )

    def _append(self, prediction: Prediction, forced: int | None) -> Append:
        """Pick and append are one act. Applying the sampler counts as picking."""
        look, table = prediction.look, self._engine.table
        started = time.monotonic_ns()
        if forced is None:
            u = draw(self.sampler.seed, self.salt, prediction.step)
            choice = look.evaluation.pick(u)
        else:
            choice = look.evaluation.forced(forced)
        picked = time.monotonic_ns()
        self.path.append(choice.id)
        self.pending = None
        self.ended = self._end_after(prediction.step, choice.id)
        piece, special = table.piece(choice.id), table.is_special(choice.id)
        append_ms = (time.monotonic_ns() - picked) / 1e6
        pick_ms = look.evaluate_ms + (picked - started) / 1e6
        read_ms = prediction.tokenize_ms + prediction.forward.ms + look.probe_ms
        return Append(
            step=prediction.step,
            choice=choice,
            piece=piece,
            special=special,
            pick_ms=pick_ms,
            append_ms=append_ms,
            total_ms=read_ms + pick_ms + append_ms,
            stop=self.ended,
        )

    def _end_after(self, step: int, token_id: int) -> OwnStop | None:
        if token_id in self._eos:
            return "eos"
        if step + 1 == self._order.max_steps:
            return "length"
        full = self._room is not None and len(self.path) >= self._room
        return "context" if full else None


def _named(report: Report, table: PieceTable) -> Candidates:
    """The report's candidates with the bytes that name them."""
    pieces = [table.piece(i) for i in report.ids]
    return Candidates(
        ids=pack_ints("I", report.ids),
        logit=pack_floats("f", report.logits),
        final_logprob=pack_floats("f", report.final_logprobs),
        dropped_by=bytes(report.dropped_by),
        special=bytes(map(table.is_special, report.ids)),
        piece_len=pack_ints("H", map(len, pieces)),
        pieces=b"".join(pieces),
    )
