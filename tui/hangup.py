"""Notice that the terminal is gone, also where SIGHUP is ignored (nohup, some multiplexers).

Textual's input thread would read the end of file for ever and take a core. Knows a file descriptor.
"""

import select
from typing import Final

CHECK_S: Final = 1.0
GRACE_S: Final = 1.0
"""How long the application may take to leave by itself once its terminal is gone."""
EXIT_CODE: Final = 129
"""128 + SIGHUP, as a shell tells it."""


def hung_up(fd: int) -> bool:
    """Nobody holds the other end of this terminal."""
    watched = select.poll()
    try:
        watched.register(fd, 0)
        return any(events for _, events in watched.poll(0))
    except (OSError, ValueError):
        return True
