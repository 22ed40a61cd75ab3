"""The daemon's own log file: bounded, the oldest part going first.

The hub and all its children write to one open file, each line at its end, so a full one is copied
and emptied where it lies. Knows files; nothing of what is written.
"""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final

from engine_daemon.paths import Paths

LIMIT_BYTES: Final = 5_000_000
KEPT: Final = 3
"""Older parts: `daemon.log.1` is the one before."""


def older(log: Path, number: int) -> Path:
    """The part of the log that was written `number` fillings ago."""
    return log.with_name(f"{log.name}.{number}")


class LogFile:
    """Looked at now and then by the hub, whose standard error it is."""

    def __init__(self, paths: Paths, limit_bytes: int = LIMIT_BYTES, fd: int = 2) -> None:
        self._path = paths.log
        self._limit = limit_bytes
        self._fd = fd

    def check(self) -> None:
        """Put a full one aside; where that fails it goes on growing until the next look."""
        with contextlib.suppress(OSError):
            info = os.fstat(self._fd)
            if info.st_size > self._limit and _is_at(info, self._path):
                self._put_aside()

    def _put_aside(self) -> None:
        beside = older(self._path, 0)
        with self._path.open("rb") as full, beside.open("wb") as copy:
            os.chmod(beside, 0o600)
            shutil.copyfileobj(full, copy)
            for number in range(KEPT, 1, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(older(self._path, number - 1), older(self._path, number))
            os.replace(beside, older(self._path, 1))
            shutil.copyfileobj(full, copy)  # what was written meanwhile
            copy.flush()
            os.ftruncate(self._fd, 0)


def _is_at(info: os.stat_result, path: Path) -> bool:
    there = os.stat(path)
    return (info.st_dev, info.st_ino) == (there.st_dev, there.st_ino)
