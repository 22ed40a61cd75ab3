"""One thread that calls `fdatasync`: at once while a person steps, at most every 50 ms in a run.

Knows logs only as something to sync; tells the hub through a wake-up file descriptor.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import Final

from engine_daemon.recording.writer import LogError, LogFull, LogWriter

PERIOD_S: Final = 0.05

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def keeping_on(log: logging.Logger) -> Iterator[None]:
    """A recording that cannot be written hurts its session, not the daemon."""
    try:
        yield
    except LogError as error:
        log.error("%s", error.message)


class Syncer:
    """Owns the thread. `durable` says how many events of a log are known to be on disk."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._dirty: dict[str, LogWriter] = {}
        self._durable: dict[str, int] = {}
        self._leaving = False
        self.wake_fd, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="fdatasync", daemon=True)
        self._thread.start()

    def mark(self, session: str, log: LogWriter) -> None:
        """The log grew."""
        with self._changed:
            self._dirty[session] = log
            self._changed.notify()

    def durable(self, session: str) -> int:
        """Events of this log that a power cut cannot take."""
        return self._durable.get(session, 0)

    def forget(self, session: str) -> None:
        """The log is about to be closed, which syncs it."""
        with self._changed:
            self._dirty.pop(session, None)
            self._durable.pop(session, None)

    def drain(self) -> None:
        """Empty the wake-up pipe."""
        try:
            while os.read(self.wake_fd, 4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Stop the thread; what is dirty was synced by `forget`."""
        with self._changed:
            self._leaving = True
            self._changed.notify()
        self._thread.join()
        os.close(self.wake_fd)
        os.close(self._wake)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._dirty and not self._leaving:
                    self._changed.wait()
                if self._leaving:
                    return
                dirty, self._dirty = self._dirty, {}
            for session, log in dirty.items():
                self._sync(session, log)
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake, b"!")
            time.sleep(PERIOD_S)

    def _sync(self, session: str, log: LogWriter) -> None:
        try:
            self._durable[session] = log.sync()
        except LogFull as error:
            _log.error("fdatasync of %s: %s", session, error)
