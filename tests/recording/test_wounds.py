"""A recording cut anywhere, or with a bit flipped: what is told of it is never wrong.

A short form for every run, a long one (`soak`) over every byte and with all exporters.
"""

import random
from itertools import accumulate
from pathlib import Path

import pytest

from engine_daemon.errors import InspectError
from engine_daemon.export.jsonl import JsonLines, export
from engine_daemon.export.registry import EXPORTERS, exporter
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.reader import Recording
from tests.export.samples import hostile
from tests.recording.logs import framed, packed
from tests.recording.test_bulk import many_kinds, told

LOG = packed(many_kinds())
FRAMES = framed(LOG)
RAW = b"".join(FRAMES)
ENDS = [0, *accumulate(map(len, FRAMES))]


def one_by_one(seqs: list[int], log: list[bytes], end: int) -> Columns:
    """Plainly folded: the events of these numbers, the others lost."""
    columns = Columns()
    for seq in seqs:
        columns.skip(seq)
        columns.apply(seq, log[seq])
    columns.skip(end)
    return columns


def check_cut(path: Path, length: int, known: dict[int, object]) -> None:
    """A recording of so many bytes tells exactly of the whole frames in them."""
    path.write_bytes(RAW[:length])
    whole = sum(end <= length for end in ENDS[1:])
    columns = Columns()
    with Recording.open(path, columns) as recording:
        assert len(recording) == recording.next == whole
        assert recording.lost_bytes == length - ENDS[whole]
        if whole == 0:
            assert recording.state == ("cut" if length else "foreign")
            with pytest.raises(InspectError) as error:
                recording.check()
            assert error.value.exit_code == 6
            return
        complete = length == ENDS[whole]
        ends = "ok" if whole == len(LOG) else "open"
        assert recording.state == (ends if complete else "cut")
        assert bool(recording.report()) == (recording.state != "ok")
    if whole not in known:
        known[whole] = told(one_by_one(list(range(whole)), LOG, whole))
    assert told(columns) == known[whole]


def check_flip(path: Path, rng: random.Random, log: list[bytes], frames: list[bytes]) -> Recording:
    """One frame is lost and said to be; every other one is as it was."""
    raw = bytearray(b"".join(frames))
    ends = [0, *accumulate(map(len, frames))]
    at = rng.randrange(len(raw))
    raw[at] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(raw))
    hit = sum(end <= at for end in ends) - 1
    columns = Columns()
    recording = Recording.open(path, columns)
    kept = [seq for seq in range(len(log)) if seq != hit]
    assert [seq for seq, _ in recording.events()] == kept
    last = hit == len(log) - 1
    assert recording.state in ("damaged", "cut") if last else recording.state == "damaged"
    assert len(recording.report()) == 1
    assert told(columns) == told(one_by_one(kept, log, recording.next))
    return recording


@pytest.mark.fault("R4")
def test_cut_near_every_edge_and_here_and_there(tmp_path: Path) -> None:
    known: dict[int, object] = {}
    near = {end + off for end in ENDS for off in (-1, 0, 1, 4, 8, 19, 20, 21)}
    lengths = near | set(range(0, len(RAW), 23))
    for length in sorted(length for length in lengths if 0 <= length <= len(RAW)):
        check_cut(tmp_path / "a.lir", length, known)


@pytest.mark.fault("R5")
def test_bits_flipped_here_and_there(tmp_path: Path) -> None:
    rng = random.Random(4)
    for _ in range(60):
        check_flip(tmp_path / "a.lir", rng, LOG, FRAMES).close()


@pytest.mark.fault("R5")
def test_a_step_that_lost_an_event_is_left_out(tmp_path: Path) -> None:
    """Whatever is exported of a damaged recording is a line of the whole one."""
    lines = JsonLines()
    whole = [line for seq, one in enumerate(LOG) for line in lines.feed(seq, unpack_event(one))]
    rng = random.Random(9)
    for _ in range(40):
        with check_flip(tmp_path / "a.lir", rng, LOG, FRAMES) as recording:
            told_ = [line for line in export(recording) if line["event"] == "step"]
        assert all(line in whole for line in told_)


@pytest.mark.soak
@pytest.mark.fault("R4")
def test_cut_at_every_byte(tmp_path: Path) -> None:
    known: dict[int, object] = {}
    for length in range(len(RAW) + 1):
        check_cut(tmp_path / "a.lir", length, known)


@pytest.mark.soak
@pytest.mark.fault("R5")
def test_500_flips_with_every_exporter(tmp_path: Path) -> None:
    rng = random.Random(5)
    for turn in range(500):
        log = LOG if turn % 2 else packed(hostile())
        with check_flip(tmp_path / "a.lir", rng, log, framed(log)) as recording:
            for name in EXPORTERS:
                assert b"".join(exporter(name)(recording)) or name == "text"
