"""The files of a folder of recordings, and which of them are pinned there.

A pin is an empty file beside a recording: it is of the folder, not of the session, so a copy has
none, and a recording that cannot be written can have one. Knows names and kinds of files.
"""

import os
from pathlib import Path
from typing import Final

SUFFIX: Final = ".lir"
PIN: Final = ".keep"


def recordings_in(folder: Path, beginning: str = "") -> list[Path]:
    """Every recording whose name begins so, in order of names; none where there is no folder.

    Regular files only: a link is not ours, and a pipe or a device would be waited for.
    """
    try:
        with os.scandir(folder) as found:
            names = [
                entry.name
                for entry in found
                if entry.name.startswith(beginning)
                and entry.name.endswith(SUFFIX)
                and entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []
    return [folder / name for name in sorted(names)]


def is_pinned(recording: Path) -> bool:
    """It is never removed to make room."""
    return os.path.lexists(recording.with_suffix(PIN))


def pin(recording: Path, *, on: bool) -> None:
    """Pin it, or no longer. Raises OSError."""
    beside = recording.with_suffix(PIN)
    if on:
        os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    else:
        beside.unlink(missing_ok=True)
