"""What happens to sessions, handed to the hub as events of their logs; at most a window of them.

Knows seats and the shape of events; decides nothing.
"""

import logging
from collections.abc import Callable
from typing import Final

from engine_daemon.errors import InspectError
from engine_daemon.protocol.codec import pack_event
from engine_daemon.protocol.events import Event
from engine_daemon.protocol.values import StopReason
from engine_daemon.protocol.worker import EventOut
from engine_daemon.worker import told
from engine_daemon.worker.backends.base import NoMemoryError
from engine_daemon.worker.breakpoints import Fired
from engine_daemon.worker.seat import Seat

WINDOW: Final = 64
"""Events of all sessions together that may be under way to the hub's log."""
_MOST_A_TURN: Final = 3
"""Stepped, Predicted, Stopped; or PromptScored, Predicted, Stopped."""
_LONGEST_MESSAGE: Final = 300

_log: Final = logging.getLogger(__name__)


class Telling:
    """The way to the hub; `send` passes an event on."""

    def __init__(self, send: Callable[[EventOut], None]) -> None:
        self._send = send
        self._under_way = 0

    def is_open(self) -> bool:
        """A turn's events fit in the window."""
        return self._under_way <= WINDOW - _MOST_A_TURN

    def seen(self, seat: Seat, count: int) -> None:
        """So many events of this session are in its log."""
        count = min(count, seat.sent)
        self._under_way -= max(0, count - seat.seen)
        seat.seen = max(seat.seen, count)

    def forget(self, seat: Seat) -> None:
        """Nobody will say what became of this session's events."""
        self._under_way -= seat.sent - seat.seen

    def tell(self, seat: Seat, event: Event) -> None:
        """One event."""
        seat.sent += 1
        self._under_way += 1
        self._send(EventOut(session=seat.session.id, event=pack_event(event)))

    def disabled(self, seat: Seat) -> None:
        """Conditions that were given up since this was asked."""
        given_up, seat.breakpoints.disabled = seat.breakpoints.disabled, []
        for one in given_up:
            self.tell(seat, told.disabled(seat.session, one, seat.cause()))

    def stop(
        self,
        seat: Seat,
        reason: StopReason,
        cause: bytes | None,
        *,
        message: str = "",
        fired: Fired | None = None,
    ) -> None:
        """The session stands."""
        seat.run = seat.halt = seat.fired = None
        seat.stands = True
        event = told.stopped(seat.session, reason, cause, message=message, fired=fired)
        self.tell(seat, event)

    def guarded(self, seat: Seat, act: Callable[[], None]) -> None:
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
        seat.opening, seat.run, seat.halt, seat.fired = False, None, None, None
        seat.stands = True
        seat.measures.clear()
        self.tell(seat, event)


def one_line(error: Exception) -> str:
    """What an exception says, and what to do where it knows it, fit for a screen."""
    said = str(error)
    if isinstance(error, InspectError) and error.hint:
        said = f"{said}. {error.hint}"
    words = " ".join(said.split()) or type(error).__name__
    return words if len(words) <= _LONGEST_MESSAGE else words[: _LONGEST_MESSAGE - 1] + "…"
