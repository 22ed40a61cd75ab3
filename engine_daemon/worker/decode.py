"""The decode loop of one session: a generator that stops after every forward and every append.

Whoever drives it decides: one step, on and on, or not at all. Works with any backend; knows no
torch, no sockets and nothing of other sessions.
"""

import time
from collections.abc import Generator

from msgspec.structs import replace

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.events import Phase
from engine_daemon.protocol.packing import unpack_ints
from engine_daemon.protocol.values import CacheReport, Restored, Sampler, Work
from engine_daemon.protocol.worker import Move, OpenSession
from engine_daemon.worker import claims
from engine_daemon.worker.backends.base import Forward, ScoresPrompt, SessionCache
from engine_daemon.worker.budget import Frugal
from engine_daemon.worker.claims import Claim
from engine_daemon.worker.engine import Engine
from engine_daemon.worker.kept_rows import PathKey
from engine_daemon.worker.outcomes import (
    Append,
    Look,
    OwnStop,
    Prediction,
    compared,
    draw,
    named,
    watched_in,
)
from engine_daemon.worker.prefill import CHUNK, Chunk, PromptScores, Reading


class DecodeSession:
    """One sequence, its cache and its sampler.

    `pending` is the prediction at the end of the sequence, if one exists; `ended` why the last
    step ended it. `watch` are ids whose numbers every distribution tells. `waited_ms` and
    `after_pause` are the driver's, told with the next forward. `scores` are of the prompt, from
    when it is read to when the driver takes them. `may_park`: there is room for what the next going
    back puts aside.
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
        self.ended: OwnStop | None = order.stops.ended if order.stops else None
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
        self._earlier = order.stops.earlier if order.stops else None
        self._cache: SessionCache | None = None
        self._frugal: Frugal | None = None
        self._held = 0
        self._key = PathKey(self.id, self.path)
        self._moved = self._recall = False
        self._unread = 0
        self._back: Restored | None = None
        self._reading: Reading | None = None
        scoring = order.stops is not None and order.stops.score
        self._scoring = PromptScores() if scoring else None
        self.scores: PromptScores | None = None
        self.used_ns = 0
        self.may_park = True

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
        return self._frugal

    def claim(self) -> Claim:
        """What the next forward takes. Right after a move a row may make it needless."""
        if self._recall and self._engine.rows.get(self._key.key) is not None:
            return Claim()
        made = self._claim(len(self.path), scored=self._scoring is not None)
        if not self._moved:
            return made
        return replace(made, aside=claims.aside(self._cache, self.path[:-1]))

    def claim_row(self, ids: list[int]) -> Claim:
        """What `make_row` takes."""
        path = self.prompt + ids
        aside = claims.aside(self._cache, path[:-1])
        return replace(self._claim(len(path)), positions=len(path), aside=aside)

    def _claim(self, length: int, *, scored: bool = False) -> Claim:
        chunk = CHUNK if self._order.cache_mode == "kv" else None
        return claims.reading(self._engine.backend, self._held, length, chunk, scored=scored)

    def ahead(self) -> int:
        """Positions that the next forward reads at most; a plain step is 1."""
        if self._order.cache_mode == "none":
            return len(self.path) + 1
        step = not self._moved and self._held > 0 and len(self.path) <= self._held + 1
        return 1 if step else CHUNK

    @property
    def reading(self) -> int | None:
        """Positions read of a sequence that is not read to its end; None when none is under way."""
        return self._held if self._reading is not None else None

    def prepare(self) -> None:
        """Have a cache, be it empty, before the next forward."""
        if self._cache is None:
            self._cache = self._engine.backend.new_cache(self._order.cache_mode)
            # Asked in every step; to look at all that a protocol names costs a part of its time.
            self._frugal = self._cache if isinstance(self._cache, Frugal) else None

    def knows(self, token_id: int) -> bool:
        """True when the model has such a token."""
        return 0 <= token_id < self._engine.loaded.model.vocabulary

    def steps(self) -> Generator[Prediction | Append | Chunk, int | None, None]:
        """Forward, append, forward … After a Prediction, send the id to force or None to pick.

        What is longer than a chunk is read in chunks, each but the last yielded as it is done.
        """
        while True:
            if self.pending is None:
                self.pending = self._recalled()
            if self.pending is None:
                while self._chunk_size():
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

    def move(self, order: Move) -> None:
        """Stand on another sequence. What is held is looked at when the next forward comes."""
        self.branch, self.sampler, self.salt = order.branch, order.sampler, order.salt
        self.path = self.prompt + unpack_ints("I", order.ids)
        self.pending, self.ended, self._earlier = None, order.ended, order.earlier
        self._key = PathKey(self.id, self.path)
        self._moved = self._recall = True
        self._unread = 0
        self._back = self._reading = None

    def make_row(self, ids: list[int]) -> Restored:
        """Make and keep the row after the prompt and `ids`; the sequence stays as it is."""
        path, started = self.prompt + ids, time.monotonic_ns()
        self.prepare()
        assert self._cache is not None
        self._moved = True
        back = self._cache.go_back(path[:-1], park=self.may_park)
        forward, read = self._engine.backend.forward, Reading()
        at = back.position
        while size := self._size_of_chunk(len(path) - at):
            read.add(forward(path[at : at + size], self._cache), 0.0)
            at += size
        last = read.whole(forward(path[at:], self._cache))
        self._engine.rows.keep(PathKey(self.id, path).key, last.distribution)
        ms = (time.monotonic_ns() - started) / 1e6
        return Restored(method=back.method or "prefill", replayed=last.processed, ms=ms)

    def give_back(self) -> None:
        """Free the cache; the next forward reads the whole sequence again."""
        if self._cache is not None:
            self._cache.free()
        self._cache = self._frugal = None
        begun = self._held > 0 and self._reading is None
        self._restoring = self._restoring or begun or self.step > 0
        self._held = 0
        self._back = self._reading = None
        if self._scoring is not None:
            self._scoring = PromptScores()

    def measure_naive(self, length: int) -> float:
        """Milliseconds of one forward without a cache over the first `length` tokens."""
        cache = self._engine.backend.new_cache("none")
        try:
            return self._engine.backend.forward(self.path[:length], cache).ms
        finally:
            cache.free()

    def _recalled(self) -> Prediction | None:
        """Right after a move: the distribution from its row, where that is held. No forward."""
        row = self._engine.rows.get(self._key.key) if self._recall else None
        self._recall = False
        if row is None:
            return None
        forward = Forward(row, 0.0, 0)
        look, cache = self._look(forward), self._report()
        if cache.tokens is not None:  # what is held beyond this step is of the path that was left
            cache = replace(cache, tokens=min(cache.tokens, len(self.path)))
        return Prediction(
            step=self.step,
            phase="decode",
            position=len(self.path),
            forward=forward,
            look=look,
            tokenize_ms=0.0,
            waited_ms=0.0,
            after_pause=False,
            cache=cache,
            work=Work(flops=0, bytes_moved=0),
            restored=Restored(method="row", replayed=0, ms=look.evaluate_ms),
        )

    def _report(self) -> CacheReport:
        if self._cache is None:
            return CacheReport(mode=self._order.cache_mode)
        return self._cache.report(self._order.limit_tokens, self._engine.rows.bytes)

    def _go_back(self) -> None:
        """After a move: hold what can be held of the path; what is read again counts for it."""
        if not self._moved:
            return
        self._moved = False
        if self._scoring is not None:
            self.give_back()  # every token of the prompt is to be seen in passing
        self.prepare()
        assert self._cache is not None
        started = time.monotonic_ns()
        back = self._cache.go_back(self.path[:-1], park=self.may_park)
        self._held = back.position
        if back.method is not None:
            replayed = len(self.path) - back.position - self._unread
            ms = (time.monotonic_ns() - started) / 1e6
            self._back = Restored(method=back.method, replayed=replayed, ms=ms)

    def _size_of_chunk(self, left: int) -> int:
        """How much of `left` positions to read first; 0 = one forward takes all of it.

        Without a cache nothing can be in parts. A single position is never left over: a forward
        of one is a step.
        """
        if self._order.cache_mode == "none" or left <= CHUNK:
            return 0
        return CHUNK if left > CHUNK + 1 else CHUNK - 1

    def _chunk_size(self) -> int:
        self._go_back()
        return self._size_of_chunk(len(self.path) - self._held)

    def _read_chunk(self) -> Chunk:
        forward = self._forward(self._chunk_size())
        if self._reading is None:
            self._reading = Reading()
        waited_ms, self.waited_ms = self.waited_ms, 0.0
        self._reading.add(forward, waited_ms)
        return Chunk(self.step, self._held, len(self.path), forward.ms, waited_ms)

    def _forward(self, count: int) -> Forward:
        """Read the next `count` tokens, and how likely those of the prompt were if that is asked
        for."""
        backend, begin = self._engine.backend, self._held
        self.prepare()
        assert self._cache is not None
        self.used_ns = time.monotonic_ns()
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
        phase: Phase = "decode" if self._held and self._reading is None else "prefill"
        forward = self._forward(len(self.path) - self._held)
        if self._reading is not None:
            forward = self._reading.whole(forward)
            self.waited_ms += self._reading.waited_ms
        position, back, look = len(self.path), self._back, self._look(forward, keep=True)
        restored = None
        if back is not None:
            restored = replace(back, ms=back.ms + forward.ms)
        elif self._restoring:
            restored = Restored(method="prefill", replayed=forward.processed, ms=forward.ms)
        prediction = Prediction(
            step=self.step,
            phase=phase,
            position=position,
            forward=forward,
            look=look,
            tokenize_ms=self._tokenize_ms,
            waited_ms=self.waited_ms,
            after_pause=self.after_pause,
            cache=self._report(),
            work=self._engine.backend.work(forward.processed, position),
            restored=compared(restored, look.report, self._earlier),
        )
        self.scores, self._scoring = self._scoring or self.scores, None
        self._back = self._reading = self._earlier = None
        self._unread = 0
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
        watched = None
        if self.watch:
            watched = watched_in(evaluation, filter(self.knows, self.watch), self._engine.table)
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
            sampler, salt = self.sampler, self.salt
            u = 0.0 if sampler.is_greedy else draw(sampler.seed, salt, prediction.step)
            choice = look.evaluation.pick(u)
        else:
            choice = look.evaluation.forced(forced)
        picked = time.monotonic_ns()
        self.path.append(choice.id)
        self._key.append(choice.id)
        self._unread += 1
        self.pending = self._earlier = None
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
