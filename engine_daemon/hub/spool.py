"""The folder of recordings kept within its limit: the oldest closed ones give way.

Never an open session's, never a pinned one, never what is no sound closed recording. Whoever reads
one that goes has it open and reads on. Knows files; no sessions.
"""

import fcntl
import logging
import os
from collections.abc import Collection
from pathlib import Path

from engine_daemon.recording.ending import is_history
from engine_daemon.recording.folder import is_pinned, recordings_in

_log = logging.getLogger(__name__)


def trim(
    folder: Path, limit_bytes: int, in_use: Collection[str], held: Collection[str] = ()
) -> list[Path]:
    """Remove closed recordings, the one that was closed first before the others, until all of them
    together take `limit_bytes` at most; what was removed. `in_use`: sessions that are open; `held`:
    closed ones whose log this process still has open, and locked."""
    files = sorted(_with_sizes(folder), key=lambda it: it[0])
    total = sum(size for _, size, _ in files)
    removed: list[Path] = []
    for _, size, path in files:
        if total <= limit_bytes:
            return removed
        if path.stem not in in_use and _went(path, locked=path.stem in held):
            _log.info("made room: removed the recording %s (%d bytes)", path.name, size)
            removed.append(path)
            total -= size
    if total > limit_bytes:
        _log.warning(
            "recordings take %d bytes, beyond the limit of %d: what is left is open or pinned",
            total,
            limit_bytes,
        )
    return removed


def _with_sizes(folder: Path) -> list[tuple[int, int, Path]]:
    """(last written, bytes, file) of each."""
    found = []
    for path in recordings_in(folder):
        try:
            info = os.lstat(path)
        except OSError:  # it was removed meanwhile
            continue
        found.append((info.st_mtime_ns, info.st_size, path))
    return found


def _went(path: Path, *, locked: bool) -> bool:
    """Remove it if it is closed, not pinned, and nobody else writes it."""
    if is_pinned(path):
        return False
    try:
        if not is_history(path):
            return False
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if not locked:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(fd)
    except OSError as error:  # locked: another command is renaming it
        _log.info("left where it is: %s: %s", path.name, error.strerror)
        return False
    return True
