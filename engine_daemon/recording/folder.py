"""The files of a folder of recordings. Knows names and kinds of files; opens none."""

import os
from pathlib import Path
from typing import Final

SUFFIX: Final = ".lir"


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
