"""The one writer of a session's log: append whole frames or nothing, and read them back.

Knows frames and their order; what an event says is its caller's business, except that frame 0 of a
log that is taken up again must be ours and not a newer format's.
"""

import contextlib
import errno
import fcntl
import os
import threading
from array import array
from bisect import bisect_right
from pathlib import Path
from typing import Final, Self

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.codec import WireError, unpack_event
from engine_daemon.protocol.events import FORMAT, Closed, Opened
from engine_daemon.recording.ending import LAST_EVENTS, closed_by
from engine_daemon.recording.format import HEADER, Frame, Hole, Tail, format_of, frame, scan
from engine_daemon.sizes import sized

SIZE_LIMIT: Final = 4 * 1024 * 1024 * 1024 - 1
"""A log that would grow beyond this stops with a reason; its offsets fit 32 bits."""


_WHAT_TO_DO: Final = {
    "disk_full": "Free some space, then go on: nothing that was shown is lost",
    "too_big": "",
}


class LogError(InspectError):
    """A log that cannot be written; `code` is `disk_full`, `locked`, `damaged`, `newer`,
    `foreign`, `too_big` or `io`."""


class LogFull(LogError):
    """An event could not be written or made durable; the log is as it was before."""

    def __init__(self, path: Path, why: str, code: str = "disk_full") -> None:
        super().__init__(
            f"cannot write {path}: {why}",
            _WHAT_TO_DO.get(code, "Make it writable, then go on: nothing that was shown is lost"),
            exit_code=Exit.DAEMON,
            code=code,
        )


class LogWriter:
    """An open log. `head` events lie in it, `size` bytes; `lost_bytes` were a torn tail.

    One thread appends and reads; `sync` may be called from another.
    """

    def __init__(self, path: Path, fd: int, ends: "array[int]", lost_bytes: int) -> None:
        self.path = path
        self.lost_bytes = lost_bytes
        self._fd = fd
        self._ends = ends
        self._broken = ""
        self._descriptor = threading.Lock()

    @classmethod
    def create(cls, path: Path, first_payload: bytes) -> Self:
        """A new log (0600, locked, its directory entry on disk) that holds event 0.

        Raises FileExistsError when there is one, LogFull when it cannot be written.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, 0o600)
        except FileExistsError:
            raise
        except OSError as error:
            raise cannot_write(path, error) from error
        writer = cls(path, fd, array("I"), 0)
        try:
            _lock(fd, path)
            writer.append(first_payload)
            _sync_directory(path.parent)
        except BaseException:
            writer.close()
            os.unlink(path)
            raise
        return writer

    @classmethod
    def reopen(cls, path: Path, owner: tuple[str, str] | None = None) -> Self:
        """Take up a log again: lock it, check every frame, cut off a torn tail.

        `owner` is `(host, name)`: a log of another is left alone. Raises LogError when it is
        locked, another's, newer, or has damage that is not at its end; the file is then untouched.
        """
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise _refused(path, _reason(error), "io") from error
        try:
            _lock(fd, path)
            ends, lost = _verify(fd, path, owner)
            if lost:
                os.ftruncate(fd, ends[-1])
        except BaseException:
            os.close(fd)
            raise
        return cls(path, fd, ends, lost)

    @property
    def head(self) -> int:
        """Number of events in the log, which is the `seq` of the next one."""
        return len(self._ends)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._ends[-1] if self._ends else 0

    def append(self, payload: bytes) -> int:
        """Write one event and give its `seq`. Raises LogFull, and then nothing has changed."""
        seq, size = len(self._ends), self.size
        if self._broken:
            raise LogFull(self.path, self._broken, "io")
        try:
            raw = frame(seq, payload)
        except ValueError as error:
            raise LogFull(self.path, str(error), "too_big") from None
        if size + len(raw) > SIZE_LIMIT:
            raise LogFull(self.path, f"a recording ends at {sized(SIZE_LIMIT)}")
        try:
            written = os.write(self._fd, raw)
        except OSError as error:
            self._cut_back(size)
            raise cannot_write(self.path, error) from error
        if written != len(raw):
            self._cut_back(size)
            raise LogFull(self.path, os.strerror(errno.ENOSPC))
        self._ends.append(size + written)
        return seq

    def bytes_from(self, start: int) -> int:
        """Bytes of the file from event `start` on, at most the head's."""
        return self.size - (self._ends[start - 1] if start else 0)

    def read(self, start: int, to: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """Events [start, to), as many as fit `max_bytes` of the file, at least one."""
        to = min(to, len(self._ends))
        if not 0 <= start < to:
            return []
        begin = self._ends[start - 1] if start else 0
        stop = max(bisect_right(self._ends, begin + max_bytes, start, to), start + 1)
        raw = os.pread(self._fd, self._ends[stop - 1] - begin, begin)
        if len(raw) != self._ends[stop - 1] - begin:
            raise _refused(self.path, "somebody cut it while it was open", "damaged")
        edges = [begin, *self._ends[start:stop]]
        return [
            (start + i, raw[edges[i] - begin + HEADER.size : edges[i + 1] - begin])
            for i in range(stop - start)
        ]

    def closed(self) -> Closed | None:
        """The `Closed` that it ends with; None where the session goes on."""
        last = self.read(max(self.head - LAST_EVENTS, 0), self.head, self.size)
        return closed_by(packed for _, packed in last)

    def sync(self) -> int:
        """Bring everything to the disk; gives how many events are durable now.

        Any thread may call it, also while the log is being closed. Raises LogFull.
        """
        with self._descriptor:
            head = len(self._ends)
            if self._fd >= 0:
                try:
                    os.fdatasync(self._fd)
                except OSError as error:
                    raise cannot_write(self.path, error) from error
            return head

    def close(self) -> None:
        """Sync as far as that works, give the lock back. Appending is over; twice is harmless."""
        with contextlib.suppress(LogFull):
            self.sync()
        with self._descriptor:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                self._broken = self._broken or "it is closed"

    def _cut_back(self, size: int) -> None:
        """Take a half-written frame out again; a log that keeps one is not written any more."""
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            self._broken = f"a torn frame could not be cut off ({_reason(error)})"


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        code = "locked" if error.errno == errno.EWOULDBLOCK else "io"
        why = "another daemon is writing it" if code == "locked" else _reason(error)
        raise _refused(path, why, code) from error


def _verify(fd: int, path: Path, owner: tuple[str, str] | None) -> tuple["array[int]", int]:
    """End offsets of all frames, and the bytes that a torn tail has."""
    ends = array("I")
    for part in scan(fd):
        match part:
            case Frame(seq=0):
                _check_first(part.payload, path, owner)
                ends.append(part.end)
            case Frame():
                if part.end > SIZE_LIMIT:
                    raise _refused(path, f"it is larger than {sized(SIZE_LIMIT)}", "disk_full")
                ends.append(part.end)
            case Hole():
                raise _refused(path, f"it is damaged: {part}", "damaged")
            case Tail():
                if not ends:
                    raise _refused(path, "there is no recording in it", "foreign")
                return ends, part.size
    raise AssertionError("a scan ends with its tail")


def _check_first(payload: bytes, path: Path, owner: tuple[str, str] | None) -> None:
    number = format_of(payload)
    if number is not None and number > FORMAT:
        raise _refused(path, f"it has format {number}, this version writes {FORMAT}", "newer")
    try:
        first = unpack_event(payload)
    except WireError:
        first = None
    if not isinstance(first, Opened):
        raise _refused(path, "it does not begin like a recording", "foreign")
    if owner is not None and (first.host, first.name) != owner:
        raise _refused(path, f"it belongs to {first.name} on {first.host}", "foreign")


def _refused(path: Path, why: str, code: str) -> LogError:
    return LogError(
        f"cannot continue {path}: {why}",
        "The recording is left as it is; it can still be read",
        exit_code=Exit.DAEMON,
        code=code,
    )


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def cannot_write(path: Path, error: OSError) -> LogFull:
    """The error of a log, or of its folder, that the system refuses to write."""
    return LogFull(path, _reason(error), _code(error))


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _code(error: OSError) -> str:
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return "disk_full" if error.errno in full else "io"
