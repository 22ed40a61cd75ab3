"""Memory that nobody uses: the caches of sessions that stand unseen are given back.

Nothing is lost: the next command reads the sequence again. Knows sessions and clocks.
"""

from collections.abc import Iterable
from typing import Protocol

from engine_daemon.hub.sessions import Session, stamp
from engine_daemon.protocol import events as ev


class Engine(Protocol):
    """What this needs of the engine side (`seats`)."""

    def drop(self, session: Session) -> None:
        """Forget the session in the worker."""
        ...


def give_back(
    sessions: Iterable[Session], engine: Engine, followed: set[str], now: float, limit_s: float
) -> bool:
    """Release what stands, is followed by nobody and had no event for `limit_s`; True if any."""
    released = False
    for session in sessions:
        if session.id in followed:
            session.used = now
        if session.resident and _idle(session) and now - session.used > limit_s:
            _release(session, engine)
            released = True
    return released


def _idle(session: Session) -> bool:
    columns = session.columns
    stands = columns.status in ("paused", "ended") and not columns.measuring
    return session.open and stands and session.closing is None and not session.stalled


def _release(session: Session, engine: Engine) -> None:
    place, pending = session.columns.place, session.columns.pending
    engine.drop(session)
    session.append(
        ev.CacheReleased(
            bytes=0 if pending is None else pending.cache.allocated_bytes or 0,
            why="cache",
            branch=place.branch,
            step=place.step,
            **stamp(),
        )
    )
