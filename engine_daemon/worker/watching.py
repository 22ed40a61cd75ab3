"""Report how a folder grows while something else fills it. Knows no network and no models."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from engine_daemon.worker.backends.base import ProgressFn

_EVERY_S = 0.2


def folder_bytes(folder: Path) -> int:
    """Bytes of the files in `folder`, links not followed; what vanishes meanwhile counts 0."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue
    return total


def watch(
    finished: Callable[[float], bool],
    folder: Path,
    stage: str,
    total: int,
    progress: ProgressFn,
) -> None:
    """Call `progress` with the folder's bytes until `finished(seconds)`, which waits, says so.

    `progress` is called from this thread only: it may own a socket.
    """
    before = folder_bytes(folder)
    said = -1
    started = time.monotonic()
    while not finished(_EVERY_S):
        done = min(folder_bytes(folder) - before, total or 1 << 62)
        if done != said or time.monotonic() - started > 1.0:
            progress(stage, done, total)
            said, started = done, time.monotonic()
