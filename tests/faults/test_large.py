"""Files that are large, or say that they are: what a command takes of memory for them. R7."""

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from engine_daemon.recording.format import MAGIC, frame
from tests.end_to_end.command import Place
from tests.faults.load import MB
from tests.recording.logs import framed, packed, session

Record = Callable[[str, object], None]
INJECTED = Path(__file__).parent / "injected"
ROOT = Path(__file__).parents[2]
LARGE = 10 * 1024**3
WHOLE = b"".join(framed(packed(session())))
COUNT = len(packed(session()))


def header(seq: int, size: int) -> bytes:
    """Of a frame that says it is so large; its checksum is of no payload."""
    said = struct.pack("<IQ", size, seq)
    return MAGIC + said + struct.pack("<I", zlib.crc32(said))


def of_msgpack(lead: bytes) -> bytes:
    """A sound frame whose event says that 4 GB follow."""
    return frame(COUNT - 1, b"\x82\xa1k\xa5Noted\xa4text" + lead + b"\xff\xff\xff\xff" + b"x" * 50)


UNENDED = b"".join(framed(packed(session(close=False))))
FORGED = {
    "sparse": b"",
    "sparse behind a recording": WHOLE,
    "a frame of 4 GB": UNENDED + header(COUNT - 1, 0xFFFFFFFF),
    "a frame of 15 MB, ever again": UNENDED + header(COUNT - 1, 15_000_000) * 100_000,
    "a text of 4 GB": UNENDED + of_msgpack(b"\xdb"),
    "4 billion items": UNENDED + of_msgpack(b"\xdd"),
    "a map of 4 billion": UNENDED + of_msgpack(b"\xdf"),
    "event 2^64 - 1": UNENDED + frame(2**64 - 1, packed(session())[-1]) + WHOLE,
}


@pytest.mark.terminal
@pytest.mark.fault("R7")
def test_no_file_takes_more_memory_than_a_small_one_may(
    place: Place, record_property: Record
) -> None:
    """The peak of the whole process, as the system knows it: not what Python counts itself."""
    peaks = place.root / "peaks"
    place.env["LLM_INSPECT_TEST_PEAK"] = str(peaks)
    place.env["PYTHONPATH"] = os.pathsep.join([str(INJECTED), str(ROOT)])
    worst = dict.fromkeys(("export", "diff", "replay"), 0)
    (place.cwd / "whole.lir").write_bytes(WHOLE)
    for name, raw in FORGED.items():
        file = place.cwd / "forged.lir"
        file.write_bytes(raw)
        large = name.startswith(("sparse", "a frame"))
        if large:
            os.truncate(file, LARGE)
        for command in worst if large else ("export",):
            peaks.write_text("")
            _look(place, command, name)
            (peak,) = map(int, peaks.read_text().split())
            worst[command] = max(worst[command], peak)
            assert peak < 100 * MB, (name, command)
    told = ", ".join(f"{command} {peak / MB:.0f} MB" for command, peak in worst.items())
    record_property("figure", f"{len(FORGED)} files, the largest of 10 GB: at the most {told}")


def _look(place: Place, command: str, name: str) -> None:
    words = {
        "export": ("export", "forged.lir", "--to", "jsonl"),
        "diff": ("diff", "whole.lir", "forged.lir"),
        "replay": ("replay", "forged.lir"),
    }[command]
    if command != "replay":
        done = place.run(*words, code=None)
        assert done.code in (0, 1, 6), (name, done)
        assert (done.code == 6) == (not done.out), (name, done)
        return
    with place.terminal(*words) as screen:
        if FORGED[name].startswith(WHOLE[:100]):
            screen.until("REPLAY")
            screen.press("G", "q")
            screen.finish()
        else:
            assert "forged.lir" in screen.finish(6)
