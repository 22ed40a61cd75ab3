"""A recording copied into a daemon's folder, as a session of its own that can go on.

Everything but the first event is copied byte for byte. Knows files; asks nobody.
"""

import os
from pathlib import Path
from typing import Final

import msgspec

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.codec import pack_event
from engine_daemon.recording.folder import SUFFIX
from engine_daemon.recording.format import frame
from engine_daemon.recording.reader import Recording

_AT_ONCE: Final = 1024 * 1024


def check_continuable(recording: Recording) -> None:
    """Raise InspectError (exit 4) where something in the middle is lost: a session is its log. So
    it is where it ends before what the session is to do."""
    if recording.state in ("ok", "open", "cut") and recording.opened is not None:
        if recording.session_set() is not None:
            return
        lost = "it ends before its prompt"
    else:
        lost = str(recording.holes[0]) if recording.holes else "its first event is lost"
    raise InspectError(
        f"{recording.path} cannot be continued: {lost}",
        f"It can still be read: llm-inspect replay {recording.path}",
        exit_code=Exit.DAEMON,
        code="damaged",
    )


def copy_into(folder: Path, recording: Recording, session: str, host: str, name: str) -> Path:
    """Put a copy there that belongs to daemon `name` on `host` and is called `session`.

    It appears whole or not at all. Raises InspectError as `check_continuable`, and OSError.
    """
    check_continuable(recording)
    opened = recording.opened
    assert opened is not None
    first = msgspec.structs.replace(
        opened, session=session, host=host, name=name, origin=opened.session
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path, beside = folder / f"{session}{SUFFIX}", folder / f".{session}.part"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb", buffering=_AT_ONCE) as file:
            file.write(frame(0, pack_event(first)))
            for seq, packed in recording.events(1):
                file.write(frame(seq, packed))
            file.flush()
            os.fsync(file.fileno())
        os.link(beside, path)  # never over another one
    finally:
        os.unlink(beside)
    return path
