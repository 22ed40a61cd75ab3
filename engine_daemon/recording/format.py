"""The frames of a `.lir` file: their bytes, and finding every sound one in whatever is there.

`magic F5 'L' 'I' 'R' | len u32 | seq u64 | crc32 u32 over len, seq, payload | payload`, integers
little-endian. Knows nothing of what a payload says, except where frame 0 names its format.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import msgspec

MAGIC: Final = b"\xf5LIR"
HEADER: Final = struct.Struct("<4sIQI")
FRAME_LIMIT: Final = 16 * 1024 * 1024
"""Bytes of the largest frame, header included."""
_CHUNK: Final = 1024 * 1024
_RESYNC_BUDGET: Final = 1024 * 1024 * 1024
"""Bytes that may be checksummed in vain while looking for the next sound frame: without a limit a
file made of nothing but magics would take hours."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One sound frame, at byte `offset` of the file."""

    seq: int
    payload: bytes
    offset: int

    @property
    def end(self) -> int:
        """Offset of the first byte after the frame."""
        return self.offset + HEADER.size + len(self.payload)


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes [offset, end) are no sound frame; events [first_seq, next_seq) are missing."""

    offset: int
    end: int
    first_seq: int
    next_seq: int

    def __str__(self) -> str:
        where = f"bytes {self.offset} to {self.end}"
        match self.next_seq - self.first_seq:
            case 0:
                return f"{where} are no event"
            case 1:
                return f"event {self.first_seq} is missing ({where})"
            case _:
                return f"events {self.first_seq} to {self.next_seq - 1} are missing ({where})"


@dataclass(frozen=True, slots=True)
class Tail:
    """Nothing sound follows `offset`; `size` bytes do (0: the file ends with a whole frame).

    `torn`: they are the beginning of a frame, as a write that was cut short leaves it.
    """

    offset: int
    size: int
    torn: bool


@dataclass(frozen=True, slots=True)
class Run:
    """Sound frames one after the other, the first of them `seq` at byte `offset`."""

    seq: int
    offset: int
    payloads: list[bytes]

    def offsets(self) -> list[int]:
        """Where each frame begins, and where the last one ends."""
        sizes = (HEADER.size + len(payload) for payload in self.payloads)
        return list(accumulate(sizes, initial=self.offset))


def frame(seq: int, payload: bytes) -> bytes:
    """The bytes of one frame; ValueError when it is larger than a reader accepts."""
    if HEADER.size + len(payload) > FRAME_LIMIT:
        raise ValueError(f"an event of {len(payload)} bytes does not fit a frame")
    checked = struct.pack("<IQ", len(payload), seq)
    crc = zlib.crc32(payload, zlib.crc32(checked))
    return b"".join((MAGIC, checked, struct.pack("<I", crc), payload))


def scan(fd: int, start: int = 0, expected: int = 0) -> Iterator[Frame | Hole | Tail]:
    """Everything from byte `start` on, where event `expected` should lie; last comes one `Tail`.

    Sees the file as long as it is when the scan begins. After damage it goes on at the next magic
    that begins a sound frame with a larger `seq` than the last one.
    """
    for part in scan_runs(fd, start, expected):
        if isinstance(part, Run):
            rows = zip(part.payloads, part.offsets(), strict=False)
            for seq, (payload, offset) in enumerate(rows, part.seq):
                yield Frame(seq, payload, offset)
        else:
            yield part


def scan_runs(fd: int, start: int = 0, expected: int = 0) -> Iterator[Run | Hole | Tail]:
    """The same, frames that follow each other taken together: several times as fast."""
    window = Window(fd)
    while True:
        run = window.run_at(start, expected)
        if run is None:
            found = window.frame_at(start, expected) or window.resync(start + 1, expected)
            if found is None:
                size = max(window.size - start, 0)
                yield Tail(start, size, size > 0 and window.is_torn(start))
                return
            if found.offset != start or found.seq != expected:
                yield Hole(start, found.offset, expected, found.seq)
            run = Run(found.seq, found.offset, [found.payload])
        yield run
        start, expected = run.offsets()[-1], run.seq + len(run.payloads)


class Window:
    """The part of a file that is looked at: no more than one chunk or one frame is held."""

    def __init__(self, fd: int, chunk: int = _CHUNK) -> None:
        self._fd = fd
        self._chunk = chunk
        self._base = 0
        self._bytes = b""
        self._budget = _RESYNC_BUDGET
        self.size = os.fstat(fd).st_size

    def get(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset`, fewer at the end of the file."""
        size = max(min(size, self.size - offset), 0)
        at = offset - self._base
        if at < 0 or at + size > len(self._bytes):
            wanted = max(size, min(self._chunk, self.size - offset))
            self._base, self._bytes, at = offset, _pread(self._fd, wanted, offset), 0
        return self._bytes[at : at + size]

    def frame_at(self, offset: int, least_seq: int) -> Frame | None:
        """The sound frame at `offset` with at least this `seq`."""
        head = self.get(offset, HEADER.size)
        if len(head) < HEADER.size:
            return None
        magic, size, seq, crc = HEADER.unpack(head)
        if magic != MAGIC or seq < least_seq or HEADER.size + size > FRAME_LIMIT:
            return None
        payload = self.get(offset + HEADER.size, size)
        if len(payload) < size:
            return None
        if _crc(head, payload) != crc:
            self._budget -= size
            return None
        return Frame(seq, payload, offset)

    def run_at(self, offset: int, seq: int) -> Run | None:
        """The sound frames from `offset` on, numbered from `seq` on, as far as they are held at
        once; None when the first is none such."""
        first = self.get(offset, HEADER.size)
        if len(first) < HEADER.size or first[:4] != MAGIC:
            return None
        self.get(offset, min(HEADER.size + HEADER.unpack(first)[1], FRAME_LIMIT))
        held, at = self._bytes, offset - self._base
        unpack, crc32, head = HEADER.unpack_from, zlib.crc32, HEADER.size
        payloads: list[bytes] = []
        limit = len(held) - head
        while 0 <= at <= limit:
            magic, size, found, crc = unpack(held, at)
            end = at + head + size
            if magic != MAGIC or found != seq or end > len(held):
                break
            payload = held[at + head : end]
            if crc32(payload, crc32(held[at + 4 : at + 16])) != crc:
                break
            payloads.append(payload)
            at, seq = end, seq + 1
        return Run(seq - len(payloads), offset, payloads) if payloads else None

    def resync(self, offset: int, least_seq: int) -> Frame | None:
        """The next sound frame at or after `offset`."""
        while (found := self._find_magic(offset)) is not None and self._budget > 0:
            if (sound := self.frame_at(found, least_seq)) is not None:
                return sound
            offset = found + 1
        return None

    def is_torn(self, offset: int) -> bool:
        """The bytes from here to the end of the file are the beginning of a frame."""
        head = self.get(offset, HEADER.size)
        if len(head) < HEADER.size:
            return head[: len(MAGIC)] == MAGIC[: len(head)]
        magic, size, _, _ = HEADER.unpack(head)
        fits = HEADER.size + size <= FRAME_LIMIT
        return bool(magic == MAGIC and fits and offset + HEADER.size + size > self.size)

    def _find_magic(self, offset: int) -> int | None:
        while offset < self.size:
            chunk = self.get(offset, _CHUNK)
            at = chunk.find(MAGIC)
            if at >= 0:
                return offset + at
            if len(chunk) < _CHUNK:
                return None
            offset = self._next_data(offset + len(chunk) - len(MAGIC) + 1)
        return None

    def _next_data(self, offset: int) -> int:
        """Skip what a sparse file does not hold: it reads as zeros, in which no magic lies."""
        try:
            return os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError:
            return self.size


def _crc(head: bytes, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(head[4:16]))


def _pread(fd: int, size: int, offset: int) -> bytes:
    """All of it: pread may give less than asked for, not only at the end."""
    raw = os.pread(fd, size, offset)
    while 0 < len(raw) < size:
        more = os.pread(fd, size - len(raw), offset + len(raw))
        if not more:
            break
        raw += more
    return raw


class _Format(msgspec.Struct):
    k: str
    format: int


_FORMAT_DECODER: Final = msgspec.msgpack.Decoder(_Format)


def format_of(payload: bytes) -> int | None:
    """The format number in frame 0, whatever else a newer format put there; None: no `Opened`."""
    try:
        first = _FORMAT_DECODER.decode(payload)
    except (ValueError, RecursionError):
        return None
    return first.format if first.k == "Opened" else None
