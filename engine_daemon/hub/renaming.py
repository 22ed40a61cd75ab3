"""Another title for a session. Knows its log."""

from typing import Final

from engine_daemon.hub.refusing import Rejected, log_command
from engine_daemon.hub.sessions import Session, stamp
from engine_daemon.protocol import events as ev

LONGEST_TITLE: Final = 200


def rename(session: Session, title: str, who: str, cause: bytes) -> None:
    """Another title, for everybody."""
    if not title.strip() or len(title) > LONGEST_TITLE:
        raise Rejected("bad_arg", f"a title has 1 to {LONGEST_TITLE} characters")
    log_command(session, "rename", who, cause, text=title)
    place = session.columns.place
    session.append(ev.Renamed(title=title, branch=place.branch, step=place.step, **stamp(cause)))


def rename_closed(session: Session, title: str, who: str, cause: bytes, now: float) -> None:
    """The same of one that was closed a moment ago, or that somebody still looks at. Its last
    event stays what it was: who closed it."""
    closed = session.log.closed()
    rename(session, title, who, cause)
    if closed is not None:
        session.close(closed.by, now, closed.cause)
