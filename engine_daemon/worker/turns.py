"""Whose turn it is: sessions round robin, what the hub asked of each, and the window of events.

Drives the decode loops one step at a time and hands out packed events; knows no sockets. Between
two turns nothing is under way, so whatever arrives is acted on there.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from engine_daemon.errors import InspectError
from engine_daemon.protocol.codec import pack_event
from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.events import Event, StopReason
from engine_daemon.protocol.worker import (
    Drop,
    EventOut,
    ForceId,
    Go,
    Halt,
    Measure,
    OpenSession,
    Pieces,
    Resample,
    Seen,
)
from engine_daemon.worker import told
from engine_daemon.worker.backends.base import NoMemoryError
from engine_daemon.worker.decode import DecodeSession, Engine
from engine_daemon.worker.prefill import Chunk
from engine_daemon.worker.seat import Run, Seat

WINDOW: Final = 64
"""Events of all sessions together that may be under way to the hub's log."""
_MOST_A_TURN: Final = 3
"""Stepped, Predicted, Stopped; or PromptScored, Predicted, Stopped."""
_LONGEST_MESSAGE: Final = 300

_log: Final = logging.getLogger(__name__)


class Turns:
    """All sessions of the worker.

    `send` passes an event on; `coming` looks at what has arrived and was not handed over yet.
    """

    def __init__(
        self,
        engine: Engine,
        send: Callable[[EventOut], None],
        coming: Callable[[], list[Message]],
    ) -> None:
        self._engine = engine
        self._send = send
        self._coming = coming
        self._seats: dict[str, Seat] = {}
        self._order: deque[str] = deque()
        self._under_way = 0

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
            case Go() | Halt() | ForceId() | Resample() | Measure():
                seat = self._seats.get(message.session)
                if seat is None:
                    _log.error("%s for unknown session %s", type(message).__name__, message.session)
                else:
                    self._command(seat, message)
            case _:
                _log.error("unexpected message %s", type(message).__name__)

    def _open(self, order: OpenSession) -> None:
        self._drop(order.session)
        seat = Seat(DecodeSession(self._engine, order), order.cause)
        seat.stands = order.stands
        self._seats[order.session] = seat
        self._order.append(order.session)

    def _drop(self, name: str) -> None:
        seat = self._seats.pop(name, None)
        if seat is not None:
            self._order.remove(name)
            self._under_way -= seat.sent - seat.seen
            seat.session.give_back()

    def _seen(self, name: str, count: int) -> None:
        seat = self._seats.get(name)
        if seat is not None:
            count = min(count, seat.sent)
            self._under_way -= max(0, count - seat.seen)
            seat.seen = max(seat.seen, count)

    def _command(self, seat: Seat, message: Go | Halt | ForceId | Resample | Measure) -> None:
        match message:
            case Go(step=goal, cause=cause, read=read):
                single = goal is not None and goal <= seat.session.step + 1
                self._start(seat, Run(goal=goal, cause=cause, single=single, read=read))
            case Measure(lengths=lengths, cause=cause):
                seat.measures.extend(lengths)
                seat.measures_cause = cause
            case ForceId(id=token_id, cause=cause):
                self._force(seat, token_id, cause)
            case Halt():
                seat.measures.clear()
                self._halt(seat, message)
            case Resample():
                self._guarded(seat, lambda: self._resample(seat, message))

    def _halt(self, seat: Seat, message: Halt) -> None:
        """Stand now where the session stands at a distribution or between two chunks, else as
        soon as it does."""
        between = seat.session.pending is not None or seat.session.reading is not None
        if (seat.run is not None or seat.opening) and between:
            seat.opening = False
            self._stop(seat, "pause", message.cause)
        elif seat.run is not None or seat.opening:
            seat.halt = message

    def _start(self, seat: Seat, run: Run) -> None:
        session = seat.session
        seat.halt = None
        if session.ended == "context":
            seat.run = run
            self._stop(seat, "context", run.cause)
            return
        if seat.run is None and not seat.opening and seat.stands:
            session.after_pause = True
        seat.run, seat.stands = run, False
        if session.pending is not None and run.forced is None:
            self._stop_at_goal(seat)

    def _force(self, seat: Seat, token_id: int, cause: bytes | None) -> None:
        session = seat.session
        run = Run(goal=session.step + 1, cause=cause, forced=token_id, single=True)
        if session.knows(token_id) and (session.pending is not None or seat.opening):
            self._start(seat, run)
            return
        seat.run = run
        why = "nothing is pending" if session.knows(token_id) else f"no token has id {token_id}"
        self._stop(seat, "error", cause, message=why)

    def _resample(self, seat: Seat, order: Resample) -> None:
        prediction = seat.session.resample(order.sampler, order.salt)
        if prediction is not None:
            self._tell(seat, told.predicted(seat.session.branch, prediction, order.cause))

    # Turns ------------------------------------------------------------------------------------

    def ready(self) -> bool:
        """True when `turn` has something to do now."""
        return self._open_window() and any(seat.wants() for seat in self._seats.values())

    def turn(self) -> None:
        """One step, or one forward, of the next session that wants one."""
        if not self._open_window():
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
        self._guarded(seat, lambda: self._advance(seat))
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
        append = seat.append(run.forced)
        if run.forced is not None:
            seat.run = Run(goal=run.goal, cause=run.cause, single=run.single)
        paused = run.goal != append.step + 1 and self._halt_comes(seat)
        stop = append.stop or ("user" if paused else None)
        self._tell(seat, told.stepped(seat.session.branch, append, stop, run.cause))
        seat.stepped = seat.sent
        if append.stop is not None:
            self._stop(seat, append.stop, run.cause)

    def _halt_comes(self, seat: Seat) -> bool:
        name = seat.session.id
        return any(isinstance(it, Halt) and it.session == name for it in self._coming())

    def _measure(self, seat: Seat) -> None:
        """One forward without a cache. A failure drops those that are left."""
        left, seat.measures = seat.measures, deque()
        length = left.popleft()
        ms = seat.session.measure_naive(length)
        seat.measures = left
        event = told.naive(seat.session, length, ms, len(left), seat.measures_cause)
        self._tell(seat, event)

    def _forward(self, seat: Seat) -> None:
        made = seat.forward()
        cause, session = seat.cause(), seat.session
        if isinstance(made, Chunk):
            self._tell(seat, told.prefilled(session.branch, made, cause))
            self._stop_in_prefill(seat, made)
            return
        opened_only = seat.opening and seat.run is None
        seat.opening = False
        if session.scores is not None:
            self._tell(seat, told.scored(session, session.scores, cause))
            session.scores = None
        self._tell(seat, told.predicted(session.branch, made, cause))
        self._stop_at_goal(seat)
        if seat.halt is not None and not opened_only:
            self._stop(seat, "pause", seat.halt.cause)
        seat.halt = None

    def _stop_in_prefill(self, seat: Seat, chunk: Chunk) -> None:
        run, halt = seat.run, seat.halt
        there = run is not None and run.read is not None and chunk.done >= run.read
        if halt is not None or there:
            seat.opening = False
        if halt is not None:
            self._stop(seat, "pause", halt.cause)
        elif run is not None and there:
            self._stop(seat, "goal", run.cause)

    def _stop_at_goal(self, seat: Seat) -> None:
        run = seat.run
        if run is not None and run.goal is not None and seat.session.step >= run.goal:
            self._stop(seat, "goal", run.cause)

    # Telling ----------------------------------------------------------------------------------

    def _stop(
        self,
        seat: Seat,
        reason: StopReason,
        cause: bytes | None,
        *,
        message: str = "",
        need_bytes: int | None = None,
        have_bytes: int | None = None,
    ) -> None:
        seat.run = seat.halt = None
        seat.stands = True
        event = told.stopped(
            seat.session,
            reason,
            cause,
            message=message,
            need_bytes=need_bytes,
            have_bytes=have_bytes,
        )
        self._tell(seat, event)

    def _tell(self, seat: Seat, event: Event) -> None:
        seat.sent += 1
        self._under_way += 1
        self._send(EventOut(session=seat.session.id, event=pack_event(event)))

    def _open_window(self) -> bool:
        return self._under_way <= WINDOW - _MOST_A_TURN

    def _guarded(self, seat: Seat, act: Callable[[], None]) -> None:
        """One session's failure is told in its log; the worker and the others live on."""
        try:
            act()
        except InspectError as error:
            self._failed(seat, error)
        except Exception as error:  # noqa: BLE001  edge of the process: the worker must live
            _log.exception("step of session %s failed", seat.session.id)
            self._failed(seat, error)

    def _failed(self, seat: Seat, error: Exception) -> None:
        cause = seat.cause()
        seat.mend()
        need = have = None
        if isinstance(error, NoMemoryError):
            need, have = error.need_bytes, error.have_bytes
        short = isinstance(error, InspectError) and error.code == "no_memory"
        event = told.stopped(
            seat.session,
            "no_memory" if short else "error",
            cause,
            message=one_line(error),
            need_bytes=need,
            have_bytes=have,
        )
        seat.opening, seat.run, seat.halt, seat.stands = False, None, None, True
        seat.measures.clear()
        self._tell(seat, event)


def one_line(error: Exception) -> str:
    """What an exception says, fit for a screen."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= _LONGEST_MESSAGE else words[: _LONGEST_MESSAGE - 1] + "…"
