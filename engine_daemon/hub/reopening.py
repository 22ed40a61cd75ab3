"""Taking up a session again whose log lies among the daemon's recordings.

Plain functions over sessions; the file was brought there by whoever asks. Knows no sockets.
"""

import re
from typing import Final

from engine_daemon.errors import InspectError
from engine_daemon.hub.refusing import Rejected, log_command
from engine_daemon.hub.seats import Seats
from engine_daemon.hub.sessions import Session, SessionStore
from engine_daemon.protocol.codec import WireError

_NAME: Final = re.compile("[0-9A-Za-z]{1,32}")
"""What may be a session: nothing that leads out of the folder."""


def reopen(store: SessionStore, seats: Seats, name: str, who: str, cause: bytes) -> Session:
    """The session, paused where its log ends; one that is open already as it is."""
    known = store.get(name)
    if known is not None and known.open:
        return known
    if not _NAME.fullmatch(name) or not store.path(name).is_file():
        raise Rejected("no_session", f"no recording of a session {name[:40]!r} is here")
    try:
        session = store.take_up(name)
    except (WireError, InspectError, OSError) as error:
        code = error.code if isinstance(error, InspectError) else "damaged"
        hint = error.hint if isinstance(error, InspectError) else ""
        raise Rejected(code, str(error), hint) from None
    log_command(session, "reopen", who, cause)
    if not seats.other_model(session):
        seats.advance(session)
    return session
