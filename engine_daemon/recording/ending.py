"""How a log ends, from its last frames alone: is it history, or a session that opens again?

Reads a few kilobytes of a file, and who has it locked; changes nothing.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from engine_daemon.file_locks import holders
from engine_daemon.protocol.codec import WireError, unpack_event
from engine_daemon.protocol.events import Closed, Commanded, Renamed
from engine_daemon.recording.format import MAGIC, Frame, scan

HISTORY: Final = ("user", "run", "rejected")
"""Who closes a session for good (`Closed.by`); one that the daemon closed is open again later."""
LAST_EVENTS: Final = 32
"""Among so many lies the `Closed` of a log that is closed."""
_WINDOW: Final = 16 * 1024
"""Bytes of a file that are looked at: a `Closed` and what a renaming leaves are far smaller."""


def closed_by(last: Iterable[bytes | None]) -> Closed | None:
    """The `Closed` that these last events of a log end with; None where the session goes on.

    Whoever renames a closed session writes its end once more after the title. When that failed (a
    full disk, a kill), the end before the title still holds.
    """
    found = None
    for packed in last:
        try:
            event = None if packed is None else unpack_event(packed)
        except WireError:
            event = None
        if isinstance(event, Closed):
            found = event
        elif not isinstance(event, Renamed) and not (
            isinstance(event, Commanded) and event.op == "rename"
        ):
            found = None
    return found


def closing(path: Path) -> Closed | None:
    """What `closed_by` says of this file. Raises OSError."""
    with path.open("rb") as file:
        begin = max(0, file.seek(0, os.SEEK_END) - _WINDOW)
        file.seek(begin)
        at = file.read().find(MAGIC)
        parts = scan(file.fileno(), begin + at) if at >= 0 else ()
        return closed_by(part.payload for part in parts if isinstance(part, Frame))


def is_written(path: Path) -> bool:
    """A process of this machine has it open to append: whoever writes a log holds a lock on it."""
    return bool(holders(path))


def is_history(path: Path) -> bool:
    """A user or a `run` closed it: no daemon opens it again by itself. Raises OSError."""
    closed = closing(path)
    return closed is not None and closed.by in HISTORY
