"""SIGINT and SIGTERM of a command: the same way out, told apart by the exit code only."""

import signal

from engine_daemon.errors import Exit

_terminated = False


def take_sigterm() -> None:
    """From here on SIGTERM does what SIGINT does."""
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(_number: int, _frame: object) -> None:
    global _terminated
    _terminated = True
    if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL):
        raise KeyboardInterrupt  # a job in the background: its SIGINT would be lost
    signal.raise_signal(signal.SIGINT)


def interrupted_code() -> Exit:
    """What an interrupted command exits with."""
    return Exit.TERMINATED if _terminated else Exit.INTERRUPTED
