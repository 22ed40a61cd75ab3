"""The writer: whole frames or nothing, one at a time, and what it finds when it comes back."""

import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine_daemon.errors import Exit
from engine_daemon.protocol.codec import pack_event
from engine_daemon.recording import writer as writer_module
from engine_daemon.recording.format import FRAME_LIMIT, HEADER, frame
from engine_daemon.recording.reader import Recording
from engine_daemon.recording.writer import LogError, LogFull, LogWriter
from tests.recording.logs import framed, opened, packed, session, write_log

FIRST = pack_event(opened())


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file may grow beyond `size`: the kernel writes up to it, then refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.lir"


@pytest.fixture
def log(path: Path) -> Iterator[LogWriter]:
    writer = LogWriter.create(path, FIRST)
    yield writer
    writer.close()


def test_a_new_log_holds_frame_0_and_is_private(path: Path, log: LogWriter) -> None:
    assert path.read_bytes() == frame(0, FIRST)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (log.head, log.size, log.lost_bytes) == (1, len(frame(0, FIRST)), 0)


def test_an_existing_file_is_never_overwritten(path: Path) -> None:
    path.write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        LogWriter.create(path, FIRST)
    assert path.read_bytes() == b"mine"


def test_appended_events_are_numbered_and_lie_there_at_once(path: Path, log: LogWriter) -> None:
    assert [log.append(b"one"), log.append(b""), log.append(b"three")] == [1, 2, 3]
    assert path.read_bytes() == b"".join(framed([FIRST, b"one", b"", b"three"]))
    assert (log.head, log.size) == (4, path.stat().st_size)


def test_an_event_is_one_write(log: LogWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    real, sizes = os.write, []

    def counting(fd: int, raw: bytes) -> int:
        sizes.append(len(raw))
        return real(fd, raw)

    monkeypatch.setattr(os, "write", counting)
    log.append(b"x" * 100)
    assert sizes == [HEADER.size + 100]


def test_reading_gives_as_many_as_fit_and_always_one(log: LogWriter) -> None:
    payloads = [FIRST, *(bytes([i]) * 100 for i in range(1, 10))]
    for payload in payloads[1:]:
        log.append(payload)
    one = HEADER.size + 100
    assert log.read(0, 10, 10**6) == list(enumerate(payloads))
    assert [seq for seq, _ in log.read(2, 10, 3 * one)] == [2, 3, 4]
    assert [seq for seq, _ in log.read(2, 10, 3 * one - 1)] == [2, 3]
    assert log.read(2, 10, 1) == [(2, payloads[2])]
    assert [seq for seq, _ in log.read(7, 99, 10**6)] == [7, 8, 9]
    assert log.read(10, 99, 10**6) == []
    assert log.read(5, 5, 10**6) == []
    assert log.read(-1, 5, 10**6) == []


def test_an_event_costs_the_memory_of_one_offset(log: LogWriter) -> None:
    for _ in range(5000):
        log.append(b"x")
    assert sys.getsizeof(log._ends) / log.head <= 8


def test_reopening_goes_on_where_it_was(path: Path, log: LogWriter) -> None:
    log.append(b"one")
    log.close()
    again = LogWriter.reopen(path)
    assert (again.head, again.lost_bytes) == (2, 0)
    assert again.append(b"two") == 2
    again.close()
    assert path.read_bytes() == b"".join(framed([FIRST, b"one", b"two"]))


def test_every_torn_tail_is_cut_off_and_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    payloads = packed(session([b"A", b"B"]))[:6]
    frames = framed(payloads)
    raw = b"".join(frames)
    starts = [sum(map(len, frames[:i])) for i in range(len(frames) + 1)]
    for length in range(starts[1], len(raw) + 1):
        path.write_bytes(raw[:length])
        log = LogWriter.reopen(path)
        whole = sum(start <= length for start in starts[1:])
        assert (log.head, log.lost_bytes) == (whole, length - starts[whole])
        assert log.append(b"next") == whole
        log.close()
        assert path.read_bytes() == b"".join(framed([*payloads[:whole], b"next"]))


def test_a_log_without_a_whole_frame_is_refused_and_left(path: Path) -> None:
    raw = frame(0, FIRST)
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        with pytest.raises(LogError) as caught:
            LogWriter.reopen(path)
        assert caught.value.code == "foreign"
        assert path.stat().st_size == length


def test_damage_in_the_middle_is_refused_and_left(path: Path) -> None:
    write_log(path, session())
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(LogError) as caught:
        LogWriter.reopen(path)
    assert (caught.value.code, caught.value.exit_code) == ("damaged", Exit.DAEMON)
    assert path.read_bytes() == raw


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (pack_event(opened(format=2)), "newer"),
        (packed(session())[1], "foreign"),
        (b"not an event", "foreign"),
    ],
)
def test_what_is_not_ours_is_refused_and_left(path: Path, first: bytes, code: str) -> None:
    raw = b"".join(framed([first, b"x"])) + b"torn"
    path.write_bytes(raw)
    with pytest.raises(LogError) as caught:
        LogWriter.reopen(path)
    assert caught.value.code == code
    assert path.read_bytes() == raw


def test_the_log_of_another_daemon_is_refused_and_left(path: Path) -> None:
    write_log(path, session())
    raw = path.read_bytes() + b"\xf5LI"
    path.write_bytes(raw)
    with pytest.raises(LogError, match="belongs to default on box") as caught:
        LogWriter.reopen(path, owner=("box", "other"))
    assert caught.value.code == "foreign"
    assert path.read_bytes() == raw
    LogWriter.reopen(path, owner=("box", "default")).close()


def test_a_link_is_not_followed(tmp_path: Path, path: Path) -> None:
    write_log(path, session())
    (tmp_path / "b.lir").symlink_to(path)
    with pytest.raises(LogError):
        LogWriter.reopen(tmp_path / "b.lir")


def test_one_writer_at_a_time(path: Path, log: LogWriter) -> None:
    with pytest.raises(LogError) as caught:
        LogWriter.reopen(path)
    assert caught.value.code == "locked"
    log.close()
    LogWriter.reopen(path).close()


@pytest.mark.fault("R1")
def test_a_short_write_is_taken_back(path: Path, log: LogWriter) -> None:
    log.append(b"one")
    before = path.read_bytes()
    with file_size_limit(len(before) + 50):
        with pytest.raises(LogFull) as caught:
            log.append(b"x" * 100)
        assert caught.value.code == "disk_full"
        assert path.read_bytes() == before
        assert (log.head, log.size) == (2, len(before))
        assert log.append(b"fits") == 2
    assert log.append(b"x" * 100) == 3
    assert path.read_bytes() == b"".join(framed([FIRST, b"one", b"fits", b"x" * 100]))


def test_a_refused_write_changes_nothing(path: Path, log: LogWriter) -> None:
    before = path.read_bytes()
    with file_size_limit(len(before)), pytest.raises(LogFull):
        log.append(b"one")
    assert path.read_bytes() == before
    assert log.append(b"one") == 1


def test_a_log_that_cannot_begin_leaves_no_file(path: Path) -> None:
    with file_size_limit(10), pytest.raises(LogFull):
        LogWriter.create(path, FIRST)
    assert not path.exists()


def test_a_torn_frame_that_stays_ends_the_writing(
    log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(fd: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    with file_size_limit(log.size + 5), monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", failing)
        with pytest.raises(LogFull):
            log.append(b"one")
    with pytest.raises(LogFull, match="torn frame"):
        log.append(b"one")


def test_too_large_an_event_is_refused_before_it_is_written(path: Path, log: LogWriter) -> None:
    before = path.stat().st_size
    with pytest.raises(LogFull) as caught:
        log.append(b"x" * FRAME_LIMIT)
    assert caught.value.code == "too_big"
    assert path.stat().st_size == before


def test_a_log_ends_at_its_size_limit(log: LogWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "SIZE_LIMIT", log.size + HEADER.size + 3)
    with pytest.raises(LogFull, match="a recording ends at "):
        log.append(b"four")
    assert log.append(b"one") == 1


def test_a_missing_directory_is_an_error_one_can_show(tmp_path: Path) -> None:
    with pytest.raises(LogFull, match="No such file"):
        LogWriter.create(tmp_path / "nowhere" / "a.lir", FIRST)


def test_a_closed_log_is_not_written(log: LogWriter) -> None:
    log.close()
    log.close()
    with pytest.raises(LogFull, match="closed"):
        log.append(b"one")
    assert log.sync() == 1


def test_a_file_cut_by_somebody_is_noticed_on_reading(path: Path, log: LogWriter) -> None:
    log.append(b"one")
    os.truncate(path, 30)
    with pytest.raises(LogError, match="cut"):
        log.read(0, 2, 10**6)


def test_sync_tells_what_is_durable_from_another_thread(log: LogWriter) -> None:
    durable: list[int] = []
    going = threading.Event()

    def syncing() -> None:
        going.set()
        while not durable or durable[-1] < 300:
            durable.append(log.sync())

    thread = threading.Thread(target=syncing)
    thread.start()
    going.wait()
    for i in range(1, 300):
        log.append(bytes([i % 256]))
    thread.join(timeout=60)
    assert durable == sorted(durable)
    assert durable[-1] == log.head == 300


WRITER_PROCESS = """
import os, sys
from pathlib import Path
from engine_daemon.recording.writer import LogWriter
log = LogWriter.create(Path(sys.argv[1]), bytes.fromhex(sys.argv[2]))
while True:
    seq = log.append(os.urandom(700))
    os.write(1, seq.to_bytes(8, "little"))
"""


@pytest.mark.parametrize("acknowledged", [1, 37, 400])
@pytest.mark.fault("D1")
def test_kill_9_loses_no_event_that_was_shown(path: Path, acknowledged: int) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER_PROCESS, str(path), FIRST.hex()], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    with writer.stdout:
        seen = writer.stdout.read(8 * acknowledged)
        writer.send_signal(signal.SIGKILL)
        seen += writer.stdout.read()
    writer.wait()
    last = int.from_bytes(seen[len(seen) // 8 * 8 - 8 : len(seen) // 8 * 8], "little")
    with Recording.open(path) as recording:
        assert recording.state in ("open", "cut")
        assert recording.next > last
        assert not recording.holes
    log = LogWriter.reopen(path)
    assert log.head > last
    log.close()


FULL_DISK = """
import sys
from pathlib import Path
from engine_daemon.recording.reader import Recording
from engine_daemon.recording.writer import LogFull, LogWriter
folder = Path(sys.argv[1])
filler = folder / "filler"
filler.write_bytes(b"f" * 65536)
log = LogWriter.create(folder / "a.lir", bytes.fromhex(sys.argv[2]))
count = 0
try:
    while True:
        log.append(b"x" * 1142)
        count += 1
except LogFull as error:
    assert error.code == "disk_full", error.code
with Recording.open(folder / "a.lir") as recording:
    assert (recording.state, len(recording)) == ("open", count + 1), recording.state
filler.unlink()
assert log.append(b"y" * 1142) == count + 1
log.close()
print(count)
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
@pytest.mark.fault("R1")
def test_a_full_disk_tears_no_frame_and_is_survived(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    script = 'mount -t tmpfs -o size=256k none "$1" && exec "$2" -c "$3" "$1" "$4"'
    arguments = ["sh", str(place), sys.executable, FULL_DISK, FIRST.hex()]
    namespace = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("mount namespaces are not allowed here")
    done = subprocess.run(
        [*namespace, "sh", "-c", script, *arguments], capture_output=True, text=True, check=False
    )
    if "mount" in done.stderr and "denied" in done.stderr:
        pytest.skip("mounting a tmpfs is not allowed here")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100
