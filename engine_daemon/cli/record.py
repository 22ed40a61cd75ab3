"""`--record FILE`: the bytes of a session's log, also on the viewer's machine.

The same frames as in the daemon's own file. Knows frames and files only.
"""

import contextlib
import os
import stat
from typing import Final, Self

from engine_daemon.errors import Exit, InspectError
from engine_daemon.recording.format import frame

_WHOLE: Final = "The daemon's own recording is whole: llm-inspect sessions list --json names it"
_NOTHING: Final = "With --private the daemon keeps none either, once the session is closed"


class Recorder:
    """Writes every event it is given; without a file name it does nothing. `private`: the daemon
    keeps none beside it."""

    def __init__(self, name: str | None, *, private: bool = False) -> None:
        self._name = name
        self._else = _NOTHING if private else _WHOLE
        self._failure: InspectError | None = None
        self._made = False
        self._empty = True
        self._fd = None if name is None else self._open(name)

    def _open(self, name: str) -> int:
        """A new file, or a device that is there; a recording is never overwritten."""
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_APPEND
        try:
            try:
                fd = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o600)
                self._made = True
                return fd
            except FileExistsError:
                if not stat.S_ISCHR(os.stat(name).st_mode):
                    raise InspectError(
                        f"{name} exists", "Move it away, or record under another name"
                    ) from None
                return os.open(name, flags | os.O_NONBLOCK)
        except FileNotFoundError as error:
            why = "it is a link to nothing" if os.path.islink(name) else error.strerror
            raise InspectError(f"cannot record to {name}: {why}") from None
        except OSError as error:
            raise InspectError(f"cannot record to {name}: {error.strerror}") from None

    def write(self, seq: int, packed: bytes) -> str:
        """One event. A file that takes no more ends the recording, not the run: what is to be said
        then, once; else empty."""
        if self._fd is None:
            return ""
        data = frame(seq, packed)
        try:
            while data:
                data = data[os.write(self._fd, data) :]
                self._empty = False
        except OSError as error:
            self._failure = InspectError(
                f"{self._name} is cut at event {seq}: {error.strerror}",
                self._else,
                exit_code=Exit.DAEMON,
                code="disk_full",
            )
            self._close()
            return f"{self._failure.message}; the run goes on without it"
        return ""

    def check(self) -> None:
        """Raise InspectError (exit 4) when the recording is not whole."""
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._fd is not None:
            if self._made and self._empty and self._name is not None:
                with contextlib.suppress(OSError):
                    os.unlink(self._name)
            os.close(self._fd)
            self._fd = None
