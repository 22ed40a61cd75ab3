"""The terminal under the screen: a size when it has none, and noticing that it is gone.

Knows a file descriptor; nothing of the application.
"""

import asyncio
import contextlib
import fcntl
import select
import signal
import struct
import termios
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Final

CHECK_S: Final = 1.0
GRACE_S: Final = 1.0
"""How long the application may take to leave by itself once its terminal is gone."""
EXIT_CODE: Final = 129
"""128 + SIGHUP, as a shell tells it."""
SETTLE_S: Final = 0.1
"""After a resize the size is read once more: the kernel tells of one before it can be read."""
_LINES, _COLUMNS = 24, 80


def ensure_size(fd: int) -> None:
    """Give a terminal that nobody sized (0×0) the usual 80×24: drawing into nothing never ends."""
    with contextlib.suppress(OSError):
        rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8)))
        if not rows or not columns:
            size = struct.pack("HHHH", rows or _LINES, columns or _COLUMNS, 0, 0)
            fcntl.ioctl(fd, termios.TIOCSWINSZ, size)


def hung_up(fd: int) -> bool:
    """Nobody holds the other end of this terminal.

    Where SIGHUP is ignored (nohup, some multiplexers) nothing else tells, and Textual's input
    thread would read the end of file for ever and take a core.
    """
    watched = select.poll()
    try:
        watched.register(fd, 0)
        return any(events for _, events in watched.poll(0))
    except (OSError, ValueError):
        return True


def on_waking(driver: object, woke: Callable[[], object]) -> None:
    """Call `woke` when the process was stopped (SIGSTOP) and goes on.

    Textual's own handler sets the terminal up as after its own suspending, also where there was
    none: two threads would read keys then, and leaving would wait for one of them for ever.
    """
    before = signal.getsignal(signal.SIGCONT)

    def handle(number: int, frame: FrameType | None) -> None:
        if callable(before) and getattr(driver, "_must_signal_resume", True):
            before(number, frame)
        else:
            woke()

    signal.signal(signal.SIGCONT, handle)


def resize_in(loop: asyncio.AbstractEventLoop) -> None:
    """Have the driver's handler of SIGWINCH called by the event loop.

    In the signal's own context handlers nest: of two sizes that follow closely, the inner one reads
    the newer size and the outer one tells its older size last, which then stays on screen.
    """
    driver = signal.getsignal(signal.SIGWINCH)
    if not callable(driver) or driver.__module__.startswith("asyncio."):
        return  # none, or the loop's already
    tell = partial(driver, signal.SIGWINCH, None)
    again: asyncio.TimerHandle | None = None

    def resized() -> None:
        nonlocal again
        if again is not None:
            again.cancel()
        tell()
        again = loop.call_later(SETTLE_S, tell)

    loop.add_signal_handler(signal.SIGWINCH, resized)
