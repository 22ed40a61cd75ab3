"""`--timeout`: how long a session may take from its accepted opening, loading excluded.

Knows clocks and sessions; stopping them is done by whoever is handed in.
"""

from collections.abc import Callable, Iterable

from engine_daemon.hub.sessions import Session


class Timeouts:
    """Deadlines of open sessions. They live as long as the daemon; a restart forgets them."""

    def __init__(self, sessions: Iterable[Session], stop: Callable[[Session], None]) -> None:
        self._sessions = sessions
        self._stop = stop

    def start(self, session: Session, now: float) -> None:
        """The engine is there: the session's time runs, if it has a limit and did not run yet."""
        limits = session.columns.limits
        wanted = None if limits is None else limits.wanted
        if wanted is None or wanted.timeout_s is None or session.timed:
            return
        session.timed = True
        session.deadline = now + wanted.timeout_s

    @property
    def next(self) -> float | None:
        """The nearest deadline."""
        return min((s.deadline for s in self._sessions if s.deadline is not None), default=None)

    def check(self, now: float) -> None:
        """Stop what is over its time."""
        for session in self._sessions:
            if session.deadline is not None and now >= session.deadline:
                session.deadline = None
                if session.open:
                    self._stop(session)
