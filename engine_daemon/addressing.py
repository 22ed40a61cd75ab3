"""How people name a session, and the command that leads back to one.

Knows the daemon's state; no sockets and no files.
"""

import shutil
import sys
from collections.abc import Sequence
from typing import Final

from engine_daemon.characters import Visible
from engine_daemon.errors import InspectError
from engine_daemon.paths import DEFAULT_NAME
from engine_daemon.protocol.state import SessionInfo

COMMAND: Final = "llm-inspect"


def find_session(sessions: Sequence[SessionInfo], wanted: str) -> SessionInfo:
    """The session with this id, title, or unique beginning of an id; InspectError when none."""
    if not wanted:
        raise InspectError("SESSION is empty", "Give its id, its title, or a beginning of its id")
    matches = [s for s in sessions if wanted in (s.session, s.title)]
    if not matches:
        matches = [s for s in sessions if s.session.startswith(wanted.upper())]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(s.session for s in matches or sessions)
    shown = repr(wanted.translate(Visible()))
    if matches:
        raise InspectError(f"{shown} means several sessions: {names}", code="no_session")
    hint = f"Open: {names}" if sessions else "No session is open; see llm-inspect sessions list"
    raise InspectError(f"no session {shown} is open", hint, code="no_session")


def newest_session(sessions: Sequence[SessionInfo]) -> str | None:
    """The most recently created one, if any is open."""
    newest = max(sessions, key=lambda s: s.created_ns, default=None)
    return None if newest is None else newest.session


def attach_line(name: str, session: str) -> str:
    """The command that shows a session again, as it can be typed; `name` is the daemon's."""
    where = "" if name == DEFAULT_NAME else f" {name}"
    return f"{typed_command()} attach{where} --session {session}"


def typed_command() -> str:
    """`llm-inspect`, or the path it was started by when the shell would not find that."""
    return COMMAND if shutil.which(COMMAND) or COMMAND not in sys.argv[0] else sys.argv[0]
