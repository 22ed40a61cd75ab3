"""A recording as a file: what state it is in, which events are sound, which are missing.

Never writes, loads no model, follows nothing that stands in the file. What the events mean is for
`columns` to say.
"""

import os
import stat
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, Literal, Self

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.codec import WireError, unpack_event
from engine_daemon.protocol.events import FORMAT, Event, Opened, Renamed, SessionSet, UnknownEvent
from engine_daemon.recording.bulk import fold_run
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.ending import LAST_EVENTS, closed_by
from engine_daemon.recording.format import HEADER, Hole, Run, Tail, Window, format_of, scan_runs

RecordingState = Literal["ok", "open", "cut", "damaged", "newer", "foreign"]
_TAG_BYTES: Final = 16
"""Of a packed event, in which its kind lies."""
_OPENING: Final = 8
"""What a session is set to stands among so many first events."""
_UNREADABLE: Final = ("newer", "foreign")


class Recording:
    """An open recording. Use it as a context manager, or close it.

    Attributes:
        state: `ok` closed and whole; `open` whole, and not closed at its end; `cut` a torn tail
            of `lost_bytes` is ignored; `damaged` see `holes`; `newer` and `foreign` unreadable.
        holes: what is missing between sound frames.
        lost_bytes: bytes after the last sound frame.
        opened: frame 0; None when it is lost or unreadable.
        title: what the session is called, by frame 0 or since.
        format: the format number of frame 0.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._forget()

    def _forget(self) -> None:
        self.state: RecordingState = "foreign"
        self.holes: list[Hole] = []
        self.lost_bytes = 0
        self.opened: Opened | None = None
        self.title = ""
        self.format: int | None = None
        self._tail = Tail(0, 0, False)
        self._size = -1
        self._next = 0
        self._seqs = array("Q")
        self._offsets = array("Q")

    @classmethod
    def open(cls, path: Path, into: Columns | None = None) -> Self:
        """Open and scan a file; whatever is wrong with its content is in `state`.

        `into`: columns to fold its events into on the way; then nothing is read twice.

        Raises InspectError when there is no such file (exit 2) or it cannot be read (exit 6).
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise InspectError(f"there is no file {path}", exit_code=Exit.USAGE) from None
        except OSError as error:
            raise _unreadable(path, f"cannot be read: {error.strerror}", "io") from error
        recording = cls(path, fd)
        try:
            recording.follow(into)
        except OSError as error:
            os.close(fd)
            raise _unreadable(path, f"cannot be read: {error.strerror}", "io") from error
        return recording

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back; twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # What is there ----------------------------------------------------------------------------

    def __len__(self) -> int:
        """Sound events."""
        return len(self._seqs)

    def __bool__(self) -> bool:
        return True

    @property
    def next(self) -> int:
        """The `seq` that would come after the last sound event."""
        return self._next

    @property
    def changed_s(self) -> float:
        """When the file was last written to, in Unix time."""
        return os.fstat(self._fd).st_mtime

    @property
    def removed(self) -> bool:
        """Its file has no name any more; what was read of it can still be read."""
        return os.fstat(self._fd).st_nlink == 0

    def follow(self, into: Columns | None = None) -> int:
        """Look for what was appended since the last look; gives how many events are new.

        `into`: columns that hold everything before, to fold them into.
        """
        info = os.fstat(self._fd)
        if not stat.S_ISREG(info.st_mode):
            return 0
        if info.st_size == self._size or self.state == "newer":
            return 0
        if info.st_size < self._tail.offset:
            self._forget()
        self._size = info.st_size
        before = len(self._seqs)
        for part in scan_runs(self._fd, self._tail.offset, self._next):
            match part:
                case Run():
                    if not self._take(part):
                        break
                    if into is not None:
                        fold_run(into, part.seq, part.payloads)
                case Hole():
                    self.holes.append(part)
                case Tail():
                    self._tail = part
        if into is not None and self._seqs:
            into.skip(self._next)
        self._judge()
        return len(self._seqs) - before

    def _take(self, run: Run) -> bool:
        """Index frames; False when frame 0 says that the rest is not for us."""
        if run.seq == 0:
            self.format = format_of(run.payloads[0])
            first = _unpacked(run.payloads[0])
            self.opened = first if isinstance(first, Opened) else None
            if self.opened is None or self.opened.format > FORMAT:
                return False
            self.title = self.opened.title
        for packed in run.payloads:
            if b"Renamed" in packed[:_TAG_BYTES]:
                event = _unpacked(packed)
                self.title = event.title if isinstance(event, Renamed) else self.title
        self._next = run.seq + len(run.payloads)
        self._seqs.extend(range(run.seq, self._next))
        self._offsets.extend(run.offsets()[:-1])
        return True

    def _judge(self) -> None:
        self.lost_bytes = self._tail.size
        if self.format is not None and self.format > FORMAT:
            self.state = "newer"
        elif not self._seqs:
            self.state = "cut" if self._tail.torn else "foreign"
        elif self.holes or (self._tail.size and not self._tail.torn):
            self.state = "damaged"
        elif self._tail.size:
            self.state = "cut"
        else:
            closed = closed_by(self.event(seq) for seq in self._seqs[-LAST_EVENTS:])
            self.state = "open" if closed is None else "ok"

    # Reading ----------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises InspectError (exit 6) when nothing of it can be shown."""
        if self.state == "newer":
            why = f"is of format {self.format}; this version reads up to {FORMAT}"
            raise _unreadable(self.path, why, "newer", "Update llm-inspect to read it")
        if self.state == "foreign":
            raise _unreadable(self.path, "is no recording of llm-inspect", "foreign")
        if not self._seqs:
            raise _unreadable(self.path, "holds not one sound event", "cut")

    def report(self, *, written: bool = False) -> list[str]:
        """What is missing, a line each, for stderr; empty when nothing is. `written`: somebody
        writes it still, which says why there is no end, or but half an event there."""
        lines = [str(hole) for hole in self.holes]
        if self.lost_bytes and not (written and self._tail.torn):
            what = "a torn event" if self._tail.torn else "damage"
            lines.append(f"the last {self.lost_bytes} bytes are {what}; they are ignored")
        if self._seqs and self.state == "open" and not written:
            lines.append("it has no end: it is still being written, or its writer was killed")
        return lines

    def events(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """The sound events from `seq` `start` on. Raises as `check` does."""
        self.check()
        window = Window(self._fd)
        for i in range(bisect_left(self._seqs, start), len(self._seqs)):
            yield self._seqs[i], self._payload(window, i)

    def event(self, seq: int) -> bytes | None:
        """One event; None when it is missing."""
        i = bisect_left(self._seqs, seq)
        if i == len(self._seqs) or self._seqs[i] != seq:
            return None
        return self._payload(Window(self._fd, chunk=HEADER.size), i)

    def session_set(self) -> SessionSet | None:
        """What the session was set to at its opening; None where it ends before that, or has lost
        it. Raises as `check` does."""
        for _, packed in islice(self.events(), _OPENING):
            event = _unpacked(packed)
            if isinstance(event, SessionSet):
                return event
        return None

    def columns(self) -> Columns:
        """Everything folded; what is missing or is no event of ours is skipped and flagged."""
        self.check()
        columns = Columns()
        for part in scan_runs(self._fd):
            if isinstance(part, Run) and part.seq < self._next:
                known = self._next - part.seq  # it may have grown since it was opened
                fold_run(columns, part.seq, part.payloads[:known])
        columns.skip(self._next)
        return columns

    def _payload(self, window: Window, i: int) -> bytes:
        found = window.frame_at(self._offsets[i], self._seqs[i])
        if found is None or found.seq != self._seqs[i]:
            raise _unreadable(self.path, "changed while it was read", "damaged")
        return found.payload


def _unpacked(packed: bytes) -> Event | UnknownEvent | None:
    try:
        return unpack_event(packed)
    except WireError:
        return None


def _unreadable(path: Path, why: str, code: str, hint: str = "") -> InspectError:
    return InspectError(f"{path} {why}", hint, exit_code=Exit.RECORDING, code=code)
