"""The end of a pipe that tells a child its parent is gone.

Arm it first thing, before any slow import: from then on no way of dying leaves the child behind.
Knows nothing of what the child does, and gives it no chance to do more: whatever a child holds is
in the hub's log or not worth keeping.
"""

import os
import threading
from typing import Final

_CODE: Final = 1
"""Exit status of a child whose parent is gone; nobody is left to read it."""


def arm(fd: int) -> None:
    """End this process as soon as the other end of the pipe `fd` is closed.

    `fd` is the read end; the parent alone holds the write end and never writes. OSError when `fd`
    is not open: the child must not run without its watch.
    """
    os.fstat(fd)
    os.set_inheritable(fd, False)
    threading.Thread(target=_watch, args=(fd,), name="deathwatch", daemon=True).start()


def _watch(fd: int) -> None:
    try:
        while os.read(fd, 1):
            pass
    finally:
        os._exit(_CODE)
