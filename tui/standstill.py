"""Keys that were pressed while this process stood still (stopped, machine asleep) do nothing.

The terminal keeps them, and hands them over at once when the process runs again; by then the
session is somewhere else, and somebody else may have its lease. Knows clocks and a terminal.
"""

import contextlib
import fcntl
import struct
import termios
import time
from collections.abc import Callable
from typing import Final

from engine_daemon.clock import boot_seconds

STOOD_S: Final = 6.0
"""Without a turn for so long: the daemon takes such a viewer for lost."""
PERIOD_S: Final = 0.5
GRACE_S: Final = 0.3
"""What had been read from the terminal when it was emptied arrives within this."""


class Standstill:
    """`look` is to be called every PERIOD_S. `empty` drops what lies unread in the terminal; True
    when there was anything. `unsaid`: something was dropped that nobody was told of."""

    def __init__(
        self,
        empty: Callable[[], bool],
        clock: Callable[[], float] = boot_seconds,
        key_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._empty = empty
        self._clock = clock
        self._key_clock = key_clock
        self._looked = clock()
        self._until = -1.0
        self.stood_s = 0.0
        self.unsaid = False

    def look(self) -> None:
        """Note that there was no turn for too long, if so."""
        now = self._clock()
        stood, self._looked = now - self._looked, now
        if stood >= STOOD_S:
            self.stood_s = stood
            self.unsaid = self._empty() or self.unsaid
            self._until = self._key_clock() + GRACE_S

    def drops(self, key_time: float) -> bool:
        """A key of this time was pressed while the process stood still."""
        self.look()
        dropped = key_time <= self._until
        self.unsaid = self.unsaid or dropped
        return dropped


def drop_unread(terminal: int) -> bool:
    """Forget what was typed and not read; False when there was nothing."""
    with contextlib.suppress(termios.error, OSError, ValueError):
        (unread,) = struct.unpack("i", fcntl.ioctl(terminal, termios.FIONREAD, bytes(4)))
        termios.tcflush(terminal, termios.TCIFLUSH)
        return int(unread) > 0
    return False
