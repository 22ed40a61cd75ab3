"""How a log ends, from its last frame alone: is it history, or a session that opens again?

Reads a few kilobytes of a file, and who has it locked; changes nothing.
"""

import os
from pathlib import Path
from typing import Final

from engine_daemon.file_locks import holders
from engine_daemon.protocol.codec import WireError, unpack_event
from engine_daemon.protocol.events import Closed
from engine_daemon.recording.format import MAGIC, Frame, scan

HISTORY: Final = ("user", "run", "rejected")
"""Who closes a session for good (`Closed.by`); one that the daemon closed is open again later."""
_WINDOW: Final = 4096
"""A `Closed` frame is far smaller."""


def closing(path: Path) -> Closed | None:
    """The last event, where that is `Closed`. Raises OSError."""
    with path.open("rb") as file:
        begin = max(0, file.seek(0, os.SEEK_END) - _WINDOW)
        file.seek(begin)
        at = file.read().rfind(MAGIC)
        parts = scan(file.fileno(), begin + at) if at >= 0 else ()
        frames = [part for part in parts if isinstance(part, Frame)]
    if not frames:
        return None
    try:
        event = unpack_event(frames[-1].payload)
    except WireError:
        return None
    return event if isinstance(event, Closed) else None


def is_written(path: Path) -> bool:
    """A process of this machine has it open to append: whoever writes a log holds a lock on it."""
    return bool(holders(path))


def is_history(path: Path) -> bool:
    """A user or a `run` closed it: no daemon opens it again by itself. Raises OSError."""
    closed = closing(path)
    return closed is not None and closed.by in HISTORY
