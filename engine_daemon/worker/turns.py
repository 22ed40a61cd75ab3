"""Whose turn it is: sessions round robin, what the hub asked of each, and the window of events.

Drives the decode loops one step at a time and hands out packed events; knows no sockets. Between
two turns nothing is under way, so whatever arrives is acted on there.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from engine_daemon.errors import InspectError
from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.events import StepStop
from engine_daemon.protocol.packing import unpack_ints
from engine_daemon.protocol.values import Stops
from engine_daemon.protocol.worker import (
    AskRow,
    Drop,
    EventOut,
    ForceId,
    Go,
    Halt,
    MakeRow,
    Measure,
    Move,
    OpenSession,
    Pieces,
    Resample,
    RowAnswer,
    Seen,
    SetConditions,
    WorkPhase,
)
from engine_daemon.worker import told
from engine_daemon.worker.breakpoints import Breakpoints
from engine_daemon.worker.budget import Member, Why, make_room
from engine_daemon.worker.claims import Claim, scratch
from engine_daemon.worker.decode import DecodeSession
from engine_daemon.worker.engine import Engine
from engine_daemon.worker.prefill import Chunk
from engine_daemon.worker.row_reads import gone, read_row
from engine_daemon.worker.seat import Run, Seat
from engine_daemon.worker.telling import Telling

During = Callable[[WorkPhase, int], AbstractContextManager[None]]

_log: Final = logging.getLogger(__name__)


class Turns:
    """All sessions of the worker.

    `send` passes an event on, `answer` what a read found; `coming` looks at what has arrived and
    was not handed over yet. `during` is told what a turn is about, over how many positions.
    """

    def __init__(
        self,
        engine: Engine,
        send: Callable[[EventOut], None],
        coming: Callable[[], list[Message]],
        answer: Callable[[RowAnswer], None] = lambda _: None,
        during: During = lambda *_: nullcontext(),
    ) -> None:
        self._engine = engine
        self._telling = Telling(send)
        self._coming = coming
        self._answer = answer
        self._during = during
        self._seats: dict[str, Seat] = {}
        self._order: deque[str] = deque()

    # What the hub asks ----------------------------------------------------------------------

    def handle(self, message: Message) -> None:
        """Take note of a message; `turn` acts on most of it."""
        match message:
            case OpenSession():
                self._open(message)
            case Drop(session=name):
                self._drop(name)
            case Seen(session=name, next=count):
                self._seen(name, count)
            case Pieces():
                pass  # a tokens process that was restarted wrote the same table again
            case AskRow():
                self._read_row(message)
            case (
                Go()
                | Halt()
                | ForceId()
                | Resample()
                | Move()
                | MakeRow()
                | Measure()
                | SetConditions()
            ):
                seat = self._seats.get(message.session)
                if seat is None:
                    _log.error("%s for unknown session %s", type(message).__name__, message.session)
                else:
                    self._command(seat, message)
            case _:
                _log.error("unexpected message %s", type(message).__name__)

    def _open(self, order: OpenSession) -> None:
        self._drop(order.session)
        session = DecodeSession(self._engine, order)
        breakpoints = Breakpoints(self._engine, session, order.stops or Stops())
        seat = Seat(session, order.cause, breakpoints, known=order.restored, runs=not order.stands)
        seat.stands = order.stands
        self._seats[order.session] = seat
        self._order.append(order.session)

    def _drop(self, name: str) -> None:
        seat = self._seats.pop(name, None)
        if seat is not None:
            self._order.remove(name)
            self._telling.forget(seat)
            seat.session.give_back()
            self._engine.rows.drop(name)

    def _read_row(self, ask: AskRow) -> None:
        seat = self._seats.get(ask.session)
        try:
            self._answer(gone(ask) if seat is None else read_row(self._engine, seat.session, ask))
        except InspectError as error:
            self._answer(RowAnswer(ask=ask.ask, code="bad_arg", message=error.message))

    def _seen(self, name: str, count: int) -> None:
        seat = self._seats.get(name)
        if seat is not None:
            self._telling.seen(seat, count)

    def _command(
        self,
        seat: Seat,
        message: Go | Halt | ForceId | Resample | Move | MakeRow | Measure | SetConditions,
    ) -> None:
        match message:
            case Go(step=goal, cause=cause, read=read):
                single = goal is not None and goal <= seat.session.step + 1
                self._start(seat, Run(goal=goal, cause=cause, single=single, read=read))
            case Measure(lengths=lengths, cause=cause):
                seat.measures.extend(lengths)
                seat.measures_cause = cause
            case ForceId(id=token_id, cause=cause, then=then):
                self._force(seat, (token_id, *unpack_ints("I", then)), cause)
            case Move():
                seat.move(message)
            case MakeRow():
                self._telling.guarded(seat, lambda: self._make_row(seat, message))
            case Halt():
                seat.measures.clear()
                self._halt(seat, message)
            case Resample():
                self._telling.guarded(seat, lambda: self._resample(seat, message))
            case SetConditions():
                self._telling.guarded(seat, lambda: self._set_conditions(seat, message))

    def _halt(self, seat: Seat, message: Halt) -> None:
        """Stand now where the session stands at a distribution or between two chunks, else as
        soon as it does. Time that is up is told at a step: a prompt is read to its end first."""
        chunks = seat.session.reading is not None and message.reason != "timeout"
        between = seat.session.pending is not None or chunks
        if (seat.run is not None or seat.opening) and between:
            seat.opening = False
            self._telling.stop(seat, message.reason, message.cause)
        elif seat.run is not None or seat.opening:
            seat.halt = message

    def _start(self, seat: Seat, run: Run) -> None:
        session = seat.session
        seat.halt = None
        if session.ended == "context":
            seat.run = run
            self._telling.stop(seat, "context", run.cause)
            return
        if seat.run is None and not seat.opening and seat.stands:
            session.after_pause = True
        seat.run, seat.stands = run, False
        if session.pending is not None and run.forced is None:
            self._stop_here(seat)

    def _force(self, seat: Seat, ids: tuple[int, ...], cause: bytes | None) -> None:
        session = seat.session
        goal = session.step + len(ids)
        run = Run(goal=goal, cause=cause, forced=ids[0], single=True, then=ids[1:])
        strange = [token_id for token_id in ids if not session.knows(token_id)]
        if not strange and (session.ended is None or seat.opening):
            self._start(seat, run)
            return
        seat.run = run
        why = f"no token has id {strange[0]}" if strange else "nothing is pending"
        self._telling.stop(seat, "error", cause, message=why)

    def _make_row(self, seat: Seat, order: MakeRow) -> None:
        ids = unpack_ints("I", order.ids)
        self._make_room(seat, seat.session.claim_row(ids))
        restored = seat.session.make_row(ids)
        self._telling.tell(seat, told.recomputed(order.branch, len(ids), restored, order.cause))

    def _resample(self, seat: Seat, order: Resample) -> None:
        prediction = seat.session.resample(order.sampler, order.salt)
        if prediction is not None:
            self._telling.tell(seat, told.predicted(seat.session.branch, prediction, order.cause))
        elif seat.run is None and not seat.opening:
            seat.look(order.cause)  # on a branch that was switched to, nothing was looked at yet

    def _set_conditions(self, seat: Seat, order: SetConditions) -> None:
        """Another watch list shows at once where the session stands."""
        session = seat.session
        seat.breakpoints.set(order.conditions)
        self._telling.disabled(seat)
        before, session.watch = session.watch, unpack_ints("I", order.watch)
        if session.watch != before and seat.run is None:
            prediction = session.resample(session.sampler, session.salt)
            if prediction is not None:
                self._telling.tell(seat, told.predicted(session.branch, prediction, order.cause))

    # Turns ------------------------------------------------------------------------------------

    def ready(self) -> bool:
        """True when `turn` has something to do now."""
        return self._telling.is_open() and any(seat.wants() for seat in self._seats.values())

    def turn(self) -> None:
        """One step, or one forward, of the next session that wants one."""
        if not self._telling.is_open():
            return
        for _ in range(len(self._order)):
            name = self._order[0]
            self._order.rotate(-1)
            seat = self._seats[name]
            if seat.wants():
                self._take(seat)
                return

    def _take(self, seat: Seat) -> None:
        started = time.monotonic_ns()
        with self._during(*seat.ahead()):
            self._telling.guarded(seat, lambda: self._advance(seat))
        spent_ms = (time.monotonic_ns() - started) / 1e6
        for other in self._seats.values():
            if other is not seat and other.wants():
                other.session.waited_ms += spent_ms

    def waited(self, ms: float) -> None:
        """Something that is no session's used the engine."""
        for seat in self._seats.values():
            if seat.wants():
                seat.session.waited_ms += ms

    def _advance(self, seat: Seat) -> None:
        if seat.run is None and not seat.opening and seat.measures:
            self._measure(seat)
            return
        if seat.session.pending is not None and seat.run is not None:
            self._commit(seat, seat.run)
        if seat.run is not None or seat.opening:
            self._forward(seat)

    def _commit(self, seat: Seat, run: Run) -> None:
        prediction = seat.session.pending
        assert prediction is not None
        append = seat.append(run.forced)
        fired = seat.breakpoints.after_append(prediction, append)
        self._telling.disabled(seat)
        # What is forced goes in whole: only its last token stops anything.
        more = bool(run.then) and append.stop != "context"
        fired = None if more else fired
        if run.forced is not None:
            seat.run = run.after_force()
        paused = run.goal != append.step + 1 and self._halt_comes(seat)
        seen: StepStop | None = "condition" if fired else "user" if paused else None
        stop = append.stop or seen
        self._telling.tell(seat, told.stepped(seat.session.branch, append, stop, run.cause))
        seat.stepped = seat.sent
        if append.stop is not None and not more:
            self._telling.stop(seat, "condition" if fired else append.stop, run.cause, fired=fired)
        else:
            seat.fired = fired

    def _halt_comes(self, seat: Seat) -> bool:
        name = seat.session.id
        return any(
            isinstance(it, Halt) and it.session == name and it.reason == "pause"
            for it in self._coming()
        )

    def _measure(self, seat: Seat) -> None:
        """One forward without a cache. A failure drops those that are left."""
        left, seat.measures = seat.measures, deque()
        length = left.popleft()
        self._make_room(seat, Claim(scratch=scratch(self._engine.backend, length)))
        ms = seat.session.measure_naive(length)
        seat.measures = left
        event = told.naive(seat.session, length, ms, len(left), seat.measures_cause)
        self._telling.tell(seat, event)

    def _forward(self, seat: Seat) -> None:
        self._make_room(seat, seat.session.claim())
        made = seat.forward()
        cause, session = seat.cause(), seat.session
        if isinstance(made, Chunk):
            self._telling.tell(seat, told.prefilled(session.branch, made, cause))
            self._stop_in_prefill(seat, made)
            return
        opened_only = seat.opening and seat.run is None
        seat.reached()
        if session.scores is not None:
            self._telling.tell(seat, told.scored(session, session.scores, cause))
            session.scores = None
        self._telling.tell(seat, told.predicted(session.branch, made, cause))
        self._stop_here(seat)
        if seat.halt is not None and not opened_only:
            self._telling.stop(seat, seat.halt.reason, seat.halt.cause)
        seat.halt = None

    def _stop_in_prefill(self, seat: Seat, chunk: Chunk) -> None:
        run, halt = seat.run, seat.halt
        if halt is not None and halt.reason == "timeout":
            return
        there = run is not None and run.read is not None and chunk.done >= run.read
        if halt is not None or there:
            seat.opening = False
        if halt is not None:
            self._telling.stop(seat, halt.reason, halt.cause)
        elif run is not None and there:
            self._telling.stop(seat, "goal", run.cause)

    def _stop_here(self, seat: Seat) -> None:
        """Stand at the distribution that is there, if a condition or the goal says so."""
        run, prediction = seat.run, seat.session.pending
        if run is None or prediction is None or run.forced is not None:
            return
        fired, seat.fired = seat.fired, None
        if fired is None and seat.ask_here:
            fired = seat.breakpoints.at_pending(prediction)
            self._telling.disabled(seat)
        seat.ask_here = False
        if fired is not None:
            self._telling.stop(seat, "condition", run.cause, fired=fired)
        else:
            self._stop_at_goal(seat)

    def _make_room(self, wanting: Seat, claim: Claim) -> None:
        """Others give way before this session's cache grows."""
        wanting.session.prepare()
        wanting.session.may_park = make_room(
            self._engine.cache_bytes, wanting.session, claim, self._sessions, self._released
        )

    def _sessions(self) -> tuple[list[DecodeSession], list[DecodeSession]]:
        """All, and those that stand."""
        seats = self._seats.values()
        standing = [seat.session for seat in seats if seat.run is None and not seat.opening]
        return [seat.session for seat in seats], standing

    def _released(self, member: Member, size: int, why: Why) -> None:
        seat = self._seats[member.id]
        self._telling.tell(seat, told.released(seat.session, size, why))

    def _stop_at_goal(self, seat: Seat) -> None:
        run = seat.run
        if run is not None and run.goal is not None and seat.session.step >= run.goal:
            self._telling.stop(seat, "goal", run.cause)
