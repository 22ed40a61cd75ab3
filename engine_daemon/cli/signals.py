"""SIGINT, SIGTERM and SIGHUP of a command: the same way out, told apart by the exit code only."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from engine_daemon.errors import Exit

_CODES = {signal.SIGTERM: Exit.TERMINATED, signal.SIGHUP: Exit.HUNG_UP}
_code = Exit.INTERRUPTED


_WAIT: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_back() -> Iterator[None]:
    """What arrives meanwhile comes after it.

    For importing and parsing: msgspec looks at a type by running Python in the midst of its own
    code, and an exception that comes out of nowhere there crashes the process.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAIT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def take_sigterm() -> None:
    """From here on SIGTERM does what SIGINT does."""
    signal.signal(signal.SIGTERM, _end)


def take_sighup() -> None:
    """From here on the end of the terminal does so too, unless it is ignored (`nohup`)."""
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _end)


def _end(number: int, _frame: object) -> None:
    global _code
    _code = _CODES[signal.Signals(number)]
    if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL):
        raise KeyboardInterrupt  # a job in the background: its SIGINT would be lost
    signal.raise_signal(signal.SIGINT)


def interrupted_code() -> Exit:
    """What an interrupted command exits with."""
    return _code
