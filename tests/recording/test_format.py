"""Frames: their exact bytes, and what a scan makes of cut, flipped, damaged and hostile files."""

import os
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine_daemon.protocol.codec import pack_event
from engine_daemon.recording.format import (
    FRAME_LIMIT,
    HEADER,
    MAGIC,
    Frame,
    Hole,
    Tail,
    Window,
    format_of,
    frame,
    scan,
)
from tests.recording.logs import closed, framed, opened, packed, session

PAYLOADS = packed(session([b"A", b"\xe2\x98", b"\x83", *[b"x"] * 5]))
FRAMES = framed(PAYLOADS)
RAW = b"".join(FRAMES)
STARTS = [sum(map(len, FRAMES[:i])) for i in range(len(FRAMES) + 1)]


@contextmanager
def file_of(path: Path, raw: bytes) -> Iterator[int]:
    path.write_bytes(raw)
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def parts(path: Path, raw: bytes) -> tuple[list[Frame], list[Hole], Tail]:
    """Everything a scan finds, sorted by kind."""
    with file_of(path, raw) as fd:
        found = list(scan(fd))
    tail = found.pop()
    assert isinstance(tail, Tail)
    frames = [part for part in found if isinstance(part, Frame)]
    holes = [part for part in found if isinstance(part, Hole)]
    return frames, holes, tail


def check_honest(frames: list[Frame], holes: list[Hole], tail: Tail, length: int) -> None:
    """No frame differs from what was written, and every byte is accounted for."""
    at, seq = 0, 0
    gaps = {hole.offset: hole for hole in holes}
    for found in frames:
        if (hole := gaps.pop(at, None)) is not None:
            assert (hole.first_seq, hole.next_seq, hole.end) == (seq, found.seq, found.offset)
            at, seq = hole.end, hole.next_seq
        assert (found.offset, found.seq) == (at, seq)
        assert found.payload == PAYLOADS[found.seq]
        at, seq = found.end, seq + 1
    assert not gaps
    assert (tail.offset, tail.offset + tail.size) == (at, length)


def test_a_frame_is_laid_out_as_the_format_says() -> None:
    checked = struct.pack("<IQ", 5, 7)
    crc = zlib.crc32(checked + b"hello")
    assert frame(7, b"hello") == b"\xf5LIR" + checked + struct.pack("<I", crc) + b"hello"
    assert frame(7, b"hello").hex() == "f54c4952050000000700000000000000f24a00b068656c6c6f"


def test_a_frame_beyond_the_limit_is_never_made() -> None:
    assert len(frame(0, b"x" * (FRAME_LIMIT - HEADER.size))) == FRAME_LIMIT
    with pytest.raises(ValueError, match="does not fit"):
        frame(0, b"x" * (FRAME_LIMIT - HEADER.size + 1))


def test_a_whole_log_is_read_frame_by_frame(tmp_path: Path) -> None:
    frames, holes, tail = parts(tmp_path / "a.lir", RAW)
    assert [(f.seq, f.payload, f.offset) for f in frames] == list(
        zip(range(len(PAYLOADS)), PAYLOADS, STARTS, strict=False)
    )
    assert (holes, tail) == ([], Tail(len(RAW), 0, False))


@pytest.mark.fault("R4")
def test_cut_at_every_byte_gives_the_whole_frames_before_it(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path = tmp_path / "a.lir"
    path.write_bytes(RAW)
    fd = os.open(path, os.O_RDWR)
    try:
        for length in range(len(RAW), -1, -1):
            os.ftruncate(fd, length)
            found = list(scan(fd))
            whole = sum(start <= length for start in STARTS[1:])
            assert len(found) == whole + 1
            assert [f.payload for f in found[:-1] if isinstance(f, Frame)] == PAYLOADS[:whole]
            rest = length - STARTS[whole]
            assert found[-1] == Tail(STARTS[whole], rest, rest > 0)
    finally:
        os.close(fd)
    record_property("figure", f"{len(FRAMES)} frames, {len(RAW)} cuts: 0 wrong")


@pytest.mark.fault("R5")
def test_every_flipped_bit_costs_one_frame_and_is_reported(tmp_path: Path) -> None:
    rng = random.Random(1)
    for _ in range(500):
        at = rng.randrange(len(RAW))
        raw = bytearray(RAW)
        raw[at] ^= 1 << rng.randrange(8)
        frames, holes, tail = parts(tmp_path / "a.lir", bytes(raw))
        hit = sum(start <= at for start in STARTS) - 1
        assert [f.seq for f in frames] == [i for i in range(len(FRAMES)) if i != hit]
        assert len(holes) + (tail.size > 0) == 1
        check_honest(frames, holes, tail, len(RAW))


@pytest.mark.parametrize("fill", ["random", "zeros", "magics", "removed", "doubled"])
@pytest.mark.fault("R5")
def test_damaged_regions_lose_only_what_they_touch(tmp_path: Path, fill: str) -> None:
    rng = random.Random(fill)
    for _ in range(60):
        start = rng.randrange(len(RAW))
        end = min(start + rng.randrange(1, 3000), len(RAW))
        size = end - start
        middle = {
            "random": rng.randbytes(size),
            "zeros": bytes(size),
            "magics": (MAGIC * size)[:size],
            "removed": b"",
            "doubled": RAW[start:end] * 2,
        }[fill]
        raw = RAW[:start] + middle + RAW[end:]
        frames, _, _ = parts(tmp_path / "a.lir", raw)
        assert all(found.payload == PAYLOADS[found.seq] for found in frames)
        touched = {i for i, a in enumerate(STARTS[:-1]) if a < end and STARTS[i + 1] > start}
        assert set(range(len(FRAMES))) - touched <= {found.seq for found in frames}
        assert [f.seq for f in frames] == sorted({f.seq for f in frames})


def test_damage_at_the_end_is_not_taken_for_a_torn_write(tmp_path: Path) -> None:
    raw = bytearray(RAW)
    raw[-1] ^= 1
    _, holes, tail = parts(tmp_path / "a.lir", bytes(raw))
    assert (holes, tail) == ([], Tail(STARTS[-2], len(FRAMES[-1]), False))


def test_frames_that_were_cut_out_cleanly_are_missed(tmp_path: Path) -> None:
    raw = RAW[: STARTS[3]] + RAW[STARTS[6] :]
    _, holes, _ = parts(tmp_path / "a.lir", raw)
    assert holes == [Hole(STARTS[3], STARTS[3], 3, 6)]
    assert str(holes[0]).startswith("events 3 to 5 are missing")


def test_a_repeated_frame_is_not_read_twice(tmp_path: Path) -> None:
    raw = RAW[: STARTS[4]] + FRAMES[2] + RAW[STARTS[4] :]
    frames, holes, _ = parts(tmp_path / "a.lir", raw)
    assert [f.seq for f in frames] == list(range(len(FRAMES)))
    assert holes == [Hole(STARTS[4], STARTS[4] + len(FRAMES[2]), 4, 4)]
    assert str(holes[0]).endswith("are no event")


def test_a_frame_inside_the_payload_of_a_damaged_one_is_older_and_ignored(tmp_path: Path) -> None:
    log = framed([PAYLOADS[0], PAYLOADS[1], b"--" + FRAMES[0] + b"--", PAYLOADS[3]])
    raw = bytearray(b"".join(log))
    raw[len(log[0]) + len(log[1]) + HEADER.size] ^= 1
    frames, _, _ = parts(tmp_path / "a.lir", bytes(raw))
    assert [f.seq for f in frames] == [0, 1, 3]


def test_a_file_of_false_frames_is_given_up_in_time(tmp_path: Path) -> None:
    false = HEADER.pack(MAGIC, 15 * 1024 * 1024, 9, 0)
    raw = FRAMES[0] + false * (16 * 1024 * 1024 // len(false))
    frames, _, tail = parts(tmp_path / "a.lir", raw)
    assert len(frames) == 1
    assert tail.offset == len(FRAMES[0])
    assert not tail.torn


@pytest.mark.fault("R7")
def test_holes_of_a_sparse_file_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.lir"
    path.write_bytes(RAW)
    os.truncate(path, 10 * 1024**3)
    fd = os.open(path, os.O_RDONLY)
    try:
        found = list(scan(fd))
    finally:
        os.close(fd)
    assert found[-1] == Tail(len(RAW), 10 * 1024**3 - len(RAW), False)
    assert len(found) == len(FRAMES) + 1


def test_a_large_frame_is_found_behind_damage(tmp_path: Path) -> None:
    big = b"y" * (3 * 1024 * 1024)
    raw = FRAMES[0] + b"?" * 70 + frame(2, big) + frame(3, b"end")
    frames, holes, _ = parts(tmp_path / "a.lir", raw)
    assert [f.seq for f in frames] == [0, 2, 3]
    assert frames[1].payload == big
    assert [(h.first_seq, h.next_seq) for h in holes] == [(1, 2)]


def test_a_magic_across_two_chunks_is_found(tmp_path: Path) -> None:
    chunk = 1024 * 1024
    for shift in range(6):
        junk = b"?" * (chunk - 3 + shift)
        frames, _, _ = parts(tmp_path / "a.lir", FRAMES[0] + junk + frame(1, b"after"))
        assert [f.payload for f in frames] == [PAYLOADS[0], b"after"]


def test_a_window_reads_one_frame_with_a_small_chunk(tmp_path: Path) -> None:
    with file_of(tmp_path / "a.lir", RAW) as fd:
        found = Window(fd, chunk=HEADER.size).frame_at(STARTS[4], 4)
    assert found == Frame(4, PAYLOADS[4], STARTS[4])


def test_the_format_number_is_read_whatever_else_is_there() -> None:
    assert format_of(pack_event(opened(format=7))) == 7
    assert format_of(b"\x83\xa1k\xa6Opened\xa6format\x09\xa7session\x05") == 9
    assert format_of(pack_event(closed(3))) is None
    assert format_of(b"\xc1") is None
    assert format_of(b"\x91" * 5000) is None
