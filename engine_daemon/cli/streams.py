"""Standard streams that were closed before the command began (`<&-`, `>&-`, `2>&-`).

A closed descriptor would be taken by the next file that is opened: something harmless goes there.
"""

import os
import sys


def mend_streams() -> None:
    """Input reads as empty, output as a pipe that nobody reads, errors go nowhere."""
    if sys.stdin is None:
        _put(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        read_end, write_end = os.pipe()
        os.dup2(write_end, 1)  # which closes the read end where that is 1
        for end in {read_end, write_end} - {1}:
            os.close(end)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        _put(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _put(found: int, wanted: int) -> None:
    if found != wanted:
        os.dup2(found, wanted)
        os.close(found)
