"""The decode loop of one session: a generator that stops after every forward and every append.

Whoever drives it decides: one step, on and on, or not at all. Works with any backend; knows no
torch, no sockets and nothing of other sessions.
"""

import hashlib
import struct
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from engine_daemon.protocol.events import Phase
from engine_daemon.protocol.packing import pack_floats, pack_ints, unpack_ints
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.values import (
    CacheReport,
    Candidates,
    Restored,
    Sampler,
    Watched,
    Work,
)
from engine_daemon.protocol.worker import Move, OpenSession
from engine_daemon.worker.backends.base import (
    Backend,
    Choice,
    Evaluation,
    Forward,
    Loaded,
    Report,
    SessionCache,
)
from engine_daemon.worker.budget import Frugal
from engine_daemon.worker.kept_rows import KeptRows, PathKey

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
    watched: Watched | None = None


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
    """What every session of a worker shares. `cache_bytes`: the budget of all caches."""

    backend: Backend
    loaded: Loaded
    table: PieceTable
    rows: KeptRows = field(default_factory=KeptRows)
    cache_bytes: int | None = None


class DecodeSession:
    """One sequence, its cache and its sampler.

    `pending` is the prediction at the end of the sequence, if one exists; `ended` why the last
    step ended it. `watch` are ids whose numbers every distribution tells. `waited_ms` and
    `after_pause` are the driver's, told with the next forward.
    """

    def __init__(self, engine: Engine, order: OpenSession) -> None:
        model = engine.loaded.model
        self.id = order.session
        self.branch = order.branch
        self.sampler = order.sampler
        self.salt = order.salt
        self.watch = unpack_ints("I", order.stops.watch) if order.stops else []
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
        self._key = PathKey(self.id, self.path)
        self._moved = self._recall = False
        self._unread = 0
        self.used_ns = 0

    @property
    def step(self) -> int:
        """The step whose token comes next."""
        return len(self.path) - self._first

    @property
    def prompt(self) -> list[int]:
        """The ids before step 0."""
        return self.path[: self._first]

    @property
    def candidates(self) -> int:
        """How many a step carries."""
        return self._order.candidates

    @property
    def frugal(self) -> Frugal | None:
        """The cache, when it takes part in the budget."""
        return self._cache if isinstance(self._cache, Frugal) else None

    def unread(self) -> int:
        """Positions the next forward reads, going back not counted."""
        if self._recall and self._engine.rows.get(self._key.key) is not None:
            return 0
        return max(0, len(self.path) - self._held)

    def prepare(self) -> None:
        """Have a cache, be it empty, before the next forward."""
        if self._cache is None:
            self._cache = self._engine.backend.new_cache(self._order.cache_mode)

    def knows(self, token_id: int) -> bool:
        """True when the model has such a token."""
        return 0 <= token_id < self._engine.loaded.model.vocabulary

    def steps(self) -> Generator[Prediction | Append, int | None, None]:
        """Forward, append, forward … After a Prediction, send the id to force or None to pick."""
        while True:
            if self.pending is None:
                self.pending = self._recalled() or self._read()
            forced = yield self.pending
            yield self._append(self.pending, forced)

    def resample(self, sampler: Sampler, salt: int) -> Prediction | None:
        """Another sampler from here on; the pending prediction under it, without a forward."""
        self.sampler, self.salt = sampler, salt
        if self.pending is not None:
            self.pending = replace(self.pending, look=self._look(self.pending.forward))
        return self.pending

    def move(self, order: Move) -> None:
        """Stand on another sequence. What is held is looked at when the next forward comes."""
        self.branch, self.sampler, self.salt = order.branch, order.sampler, order.salt
        self.path = self.prompt + unpack_ints("I", order.ids)
        self.pending, self.ended = None, order.ended
        self._key = PathKey(self.id, self.path)
        self._moved = self._recall = True
        self._unread = 0

    def make_row(self, ids: list[int]) -> Restored:
        """Make and keep the row after the prompt and `ids`; the sequence stays as it is."""
        path, started = self.prompt + ids, time.monotonic_ns()
        self.prepare()
        assert self._cache is not None
        self._moved = True
        back = self._cache.go_back(path[:-1])
        forward = self._engine.backend.forward(path[back.position :], self._cache)
        self._engine.rows.keep(PathKey(self.id, path).key, forward.distribution)
        ms = (time.monotonic_ns() - started) / 1e6
        return Restored(method=back.method or "prefill", replayed=forward.processed, ms=ms)

    def give_back(self) -> None:
        """Free the cache; the next forward reads the whole sequence again."""
        if self._cache is not None:
            self._cache.free()
        self._cache = None
        self._restoring = self._restoring or self._held > 0 or self.step > 0
        self._held = 0

    def _recalled(self) -> Prediction | None:
        """Right after a move: the distribution from its row, where that is held. No forward."""
        row = self._engine.rows.get(self._key.key) if self._recall else None
        self._recall = False
        if row is None:
            return None
        forward = Forward(row, 0.0, 0)
        look = self._look(forward)
        return Prediction(
            step=self.step,
            phase="decode",
            position=len(self.path),
            forward=forward,
            look=look,
            tokenize_ms=0.0,
            waited_ms=0.0,
            after_pause=False,
            cache=self._report(),
            work=Work(flops=0, bytes_moved=0),
            restored=Restored(method="row", replayed=0, ms=look.evaluate_ms),
        )

    def _report(self) -> CacheReport:
        if self._cache is None:
            return CacheReport(mode=self._order.cache_mode)
        report = self._cache.report(self._order.limit_tokens)
        return msgspec.structs.replace(report, rows_bytes=self._engine.rows.bytes)

    def _go_back(self, cache: SessionCache) -> Restored | None:
        """After a move: hold what can be held of the path; what is read again counts for it."""
        self._moved = False
        started = time.monotonic_ns()
        back = cache.go_back(self.path[:-1])
        self._held = back.position
        if back.method is None:
            return None
        replayed = len(self.path) - back.position - self._unread
        ms = (time.monotonic_ns() - started) / 1e6
        return Restored(method=back.method, replayed=replayed, ms=ms)

    def _read(self) -> Prediction:
        backend = self._engine.backend
        self.prepare()
        assert self._cache is not None
        self.used_ns = time.monotonic_ns()
        back = self._go_back(self._cache) if self._moved else None
        phase: Phase = "decode" if self._held else "prefill"
        forward = backend.forward(self.path[self._held :], self._cache)
        self._held = position = len(self.path)
        self._unread = 0
        restored = Restored(method="prefill", replayed=forward.processed, ms=forward.ms)
        if back is not None:
            restored = msgspec.structs.replace(back, ms=back.ms + forward.ms)
        prediction = Prediction(
            step=self.step,
            phase=phase,
            position=position,
            forward=forward,
            look=self._look(forward, keep=True),
            tokenize_ms=self._tokenize_ms,
            waited_ms=self.waited_ms,
            after_pause=self.after_pause,
            cache=self._report(),
            work=backend.work(forward.processed, position),
            restored=restored if self._restoring or back is not None else None,
        )
        self._tokenize_ms = self.waited_ms = 0.0
        self._restoring = self.after_pause = False
        self.ended = None
        return prediction

    def _look(self, forward: Forward, *, keep: bool = False) -> Look:
        """`keep`: the row is a new one; holding it is a cost of looking."""
        before = time.monotonic_ns()
        if keep:
            self._engine.rows.keep(self._key.key, forward.distribution)
        started = time.monotonic_ns()
        evaluation = forward.distribution.evaluate(self.sampler, self.path)
        evaluated = time.monotonic_ns()
        report = evaluation.report(self._order.candidates)
        candidates = named(report, self._engine.table)
        watched = _watched(evaluation, filter(self.knows, self.watch), self._engine.table)
        return Look(
            evaluation=evaluation,
            report=report,
            candidates=candidates,
            evaluate_ms=(evaluated - started) / 1e6,
            probe_ms=(time.monotonic_ns() - evaluated + started - before) / 1e6,
            watched=watched,
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
        self._key.append(choice.id)
        self._unread += 1
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


def _watched(evaluation: Evaluation, ids: Iterable[int], table: PieceTable) -> Watched | None:
    """What these tokens have in this distribution; None where nobody watches any."""
    rows = [evaluation.forced(token_id) for token_id in ids]
    if not rows:
        return None
    pieces = [table.piece(row.id) for row in rows]
    return Watched(
        ids=pack_ints("I", [row.id for row in rows]),
        logit=pack_floats("f", [row.logit for row in rows]),
        rank=pack_ints("I", [row.rank for row in rows]),
        piece_len=pack_ints("H", map(len, pieces)),
        pieces=b"".join(pieces),
    )


def named(report: Report, table: PieceTable) -> Candidates:
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
