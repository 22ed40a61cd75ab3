"""Recordings as files: every state, what is missing, and following one that grows."""

import os
import random
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.codec import pack_event, unpack_event
from engine_daemon.protocol.events import Opened
from engine_daemon.recording.format import frame
from engine_daemon.recording.reader import Recording
from engine_daemon.recording.rows import Flag
from engine_daemon.recording.writer import LogWriter
from tests.protocol.samples import SAMPLES
from tests.recording.logs import (
    framed,
    opened,
    packed,
    predicted,
    reopened,
    session,
    stepped,
    write_log,
)

GOLDEN = Path(__file__).parent / "golden" / "v1.lir"
"""A recording of format 1 with every kind of event that there was. Never edited."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.lir"


def test_the_golden_recording_is_read(path: Path) -> None:
    with Recording.open(GOLDEN) as recording:
        assert recording.state == "open"
        assert isinstance(recording.opened, Opened)
        assert recording.opened.session == "7ZK3M9QP"
        assert recording.format == 1
        payloads = [packed for _, packed in recording.events()]
    events = [unpack_event(payload) for payload in payloads]
    assert events == [SAMPLES[type(event).__name__] for event in events]
    assert len({type(event) for event in events}) == len(events) == 13
    log = LogWriter.create(path, payloads[0])
    for payload in payloads[1:]:
        log.append(payload)
    log.close()
    assert path.read_bytes() == GOLDEN.read_bytes()


def test_a_closed_recording_is_ok(path: Path) -> None:
    payloads = write_log(path, session())
    with Recording.open(path) as recording:
        assert (recording.state, recording.report()) == ("ok", [])
        assert list(recording.events()) == list(enumerate(payloads))
        assert list(recording.events(7)) == list(enumerate(payloads))[7:]
        assert recording.event(4) == payloads[4]
        assert recording.event(len(payloads)) is None
        assert (len(recording), recording.next) == (len(payloads), len(payloads))


def test_one_without_an_end_is_open_also_when_it_was_closed_once(path: Path) -> None:
    write_log(path, session(close=False))
    with Recording.open(path) as recording:
        assert recording.state == "open"
        assert len(recording.report()) == 1
    write_log(path, [*session(), reopened()])
    with Recording.open(path) as recording:
        assert recording.state == "open"


@pytest.mark.fault("R4")
def test_cut_at_every_byte(path: Path, record_property: Callable[[str, object], None]) -> None:
    """R4: an exact prefix, and the state says so."""
    payloads = write_log(path, session([b"A"]))
    frames = framed(payloads)
    starts = [sum(map(len, frames[:i])) for i in range(len(frames) + 1)]
    for length in range(starts[-1] - 1, -1, -1):
        os.truncate(path, length)
        whole = sum(start <= length for start in starts[1:])
        rest = length - starts[whole]
        with Recording.open(path) as recording:
            assert recording.lost_bytes == rest
            if whole:
                assert recording.state == ("cut" if rest else "open")
                assert [p for _, p in recording.events()] == payloads[:whole]
            else:
                assert recording.state == ("cut" if rest else "foreign")
                with pytest.raises(InspectError) as caught:
                    recording.check()
                assert caught.value.exit_code == Exit.RECORDING
    record_property("figure", f"{len(frames)} frames, {starts[-1]} cuts: 0 wrong")


@pytest.mark.fault("R5")
def test_damage_is_listed_and_the_rest_is_read(path: Path) -> None:
    """R5: no altered event is ever given."""
    payloads = write_log(path, session([b"x"] * 9))
    raw = path.read_bytes()
    rng = random.Random(5)
    for _ in range(300):
        start = rng.randrange(len(raw))
        size = rng.randrange(1, 3000)
        damaged = raw[:start] + rng.randbytes(len(raw[start : start + size])) + raw[start + size :]
        path.write_bytes(damaged)
        with Recording.open(path) as recording:
            if not len(recording):
                assert recording.state in ("cut", "foreign")
                continue
            found = dict(recording.events())
            assert all(payloads[seq] == payload for seq, payload in found.items())
            missing = {
                seq for hole in recording.holes for seq in range(hole.first_seq, hole.next_seq)
            }
            assert set(range(recording.next)) == set(found) | missing
            if damaged != raw:
                assert recording.state in ("damaged", "cut")
                assert recording.report()


def test_a_lost_frame_0_is_damage(path: Path) -> None:
    write_log(path, session())
    raw = bytearray(path.read_bytes())
    raw[25] ^= 1
    path.write_bytes(raw)
    with Recording.open(path) as recording:
        assert (recording.state, recording.opened) == ("damaged", None)
        assert [(hole.first_seq, hole.next_seq) for hole in recording.holes] == [(0, 1)]
        assert len(recording.columns()) == 3


@pytest.mark.fault("R7")
def test_a_newer_format_is_refused_with_a_hint(path: Path) -> None:
    path.write_bytes(b"".join(framed([pack_event(opened(format=2)), b"\x81\xa1k\xa3New"])))
    with Recording.open(path) as recording:
        assert (recording.state, recording.format) == ("newer", 2)
        with pytest.raises(InspectError, match="format 2") as caught:
            list(recording.events())
        assert (caught.value.exit_code, caught.value.code) == (Exit.RECORDING, "newer")
        assert caught.value.hint
        assert recording.follow() == 0


def test_a_newer_frame_0_need_not_be_understood(path: Path) -> None:
    path.write_bytes(frame(0, b"\x82\xa1k\xa6Opened\xa6format\x02"))
    with Recording.open(path) as recording:
        assert recording.state == "newer"


@pytest.mark.fault("R7")
def test_newer_kinds_and_keys_of_the_same_format_are_read(path: Path) -> None:
    payloads = packed(session())
    payloads.insert(6, b"\x81\xa1k\xa8Teleport")
    path.write_bytes(b"".join(framed(payloads)))
    with Recording.open(path) as recording:
        assert recording.state == "ok"
        assert len(recording.columns()) == 3


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"%PDF-1.7 something else",
        b"\x00" * 5000,
        b"\xf5LIX",
        b"{}",
        random.Random(3).randbytes(9999),
    ],
    ids=["empty", "pdf", "zeros", "magic", "json", "noise"],
)
@pytest.mark.fault("R7")
def test_another_file_is_foreign(path: Path, raw: bytes) -> None:
    path.write_bytes(raw)
    with Recording.open(path) as recording:
        assert recording.state == "foreign"
        with pytest.raises(InspectError, match="no recording") as caught:
            recording.columns()
        assert caught.value.exit_code == Exit.RECORDING


@pytest.mark.parametrize(
    "first",
    [packed(session())[1], b"\xc1", b"\x81\xa1k\xa6Opened"],
    ids=["another event", "no event", "no fields"],
)
@pytest.mark.fault("R7")
def test_frames_of_another_tool_are_foreign(path: Path, first: bytes) -> None:
    path.write_bytes(b"".join(framed([first, b"x"])))
    with Recording.open(path) as recording:
        assert recording.state == "foreign"


@pytest.mark.fault("R7")
def test_what_is_no_file_is_foreign_and_nothing_hangs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for place in (tmp_path, tmp_path / "fifo", Path("/dev/zero")):
        with Recording.open(place) as recording:
            assert recording.state == "foreign"


def test_a_missing_file_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(InspectError) as caught:
        Recording.open(tmp_path / "no.lir")
    assert caught.value.exit_code == Exit.USAGE


def test_an_unopenable_file_is_unreadable(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        with pytest.raises(InspectError) as caught:
            Recording.open(tmp_path / "s")
    assert caught.value.exit_code == Exit.RECORDING


@pytest.mark.fault("R7")
def test_a_sparse_file_of_10_gb_is_nothing_to_fear(path: Path) -> None:
    """R7, with and without a recording at its beginning; its memory: tests/faults/test_large."""
    for first, state in ((b"", "foreign"), (frame(0, pack_event(opened())), "damaged")):
        path.write_bytes(first)
        os.truncate(path, 10 * 1024**3)
        with Recording.open(path) as recording:
            assert recording.state == state


@pytest.mark.fault("R6")
def test_following_sees_what_is_appended(path: Path) -> None:
    """R6: also while half a frame is there."""
    log = LogWriter.create(path, pack_event(opened()))
    with Recording.open(path) as recording:
        assert (recording.state, recording.follow()) == ("open", 0)
        for payload in packed(session())[1:]:
            seq = log.append(payload)
            assert recording.follow() == 1
            assert list(recording.events(seq)) == [(seq, payload)]
        assert recording.state == "ok"
        log.close()
        torn = frame(recording.next, pack_event(reopened()))
        with path.open("ab") as file:
            file.write(torn[:30])
        assert (recording.follow(), recording.state, recording.lost_bytes) == (0, "cut", 30)
        with path.open("ab") as file:
            file.write(torn[30:])
        assert (recording.follow(), recording.state, recording.lost_bytes) == (1, "open", 0)


def test_following_a_file_that_was_cut_begins_again(path: Path) -> None:
    payloads = write_log(path, session())
    with Recording.open(path) as recording:
        os.truncate(path, sum(map(len, framed(payloads)[:4])))
        recording.follow()
        assert (recording.state, len(recording), recording.next) == ("open", 4, 4)


def test_a_file_changed_under_the_reader_is_an_error_not_data(path: Path) -> None:
    write_log(path, session())
    with Recording.open(path) as recording:
        raw = bytearray(path.read_bytes())
        raw[-1] ^= 1
        path.write_bytes(raw)
        with pytest.raises(InspectError, match="changed"):
            list(recording.events())


def test_columns_of_a_damaged_recording_flag_what_is_lost(path: Path) -> None:
    payloads = packed(
        [opened(), predicted(0), stepped(0), predicted(1), stepped(1), predicted(2), stepped(2)]
    )
    frames = framed(payloads)
    path.write_bytes(b"".join([*frames[:3], b"?" * 40, *frames[4:]]))
    with Recording.open(path) as recording:
        assert recording.state == "damaged"
        columns = recording.columns()
    assert [bool(flags & Flag.LOST) for flags in columns.flags] == [False, True, False]
    assert columns.ids.tolist() == [65, 65, 65]


def test_a_sound_frame_that_is_no_event_is_skipped(path: Path) -> None:
    payloads = packed(session())
    payloads[8] = b"\xc1"
    path.write_bytes(b"".join(framed(payloads)))
    with Recording.open(path) as recording:
        columns = recording.columns()
    assert (columns.complete, columns.next, len(columns)) == (False, len(payloads), 3)
