"""The daemon's log: bounded, nothing of it lost but the oldest, and followed across fillings."""

import os
import signal
from pathlib import Path

import pytest

from engine_daemon.hub.log_file import KEPT, LogFile, older
from engine_daemon.paths import Paths, paths_for
from tests.daemons import directories, wait_for
from tests.end_to_end.command import SCRIPTED, Place
from tests.end_to_end.conftest import place as place


class Log:
    """A log file as a daemon has it: opened for appending, written by several processes."""

    def __init__(self, paths: Paths, limit: int) -> None:
        self.path = paths.log
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.file = LogFile(paths, limit, self.fd)
        self._count = 0

    def write(self, lines: int) -> None:
        for _ in range(lines):
            os.write(self.fd, b"line %06d\n" % self._count)
            self._count += 1

    def all(self) -> list[str]:
        parts = [older(self.path, number) for number in range(KEPT, 0, -1)]
        there = [part for part in (*parts, self.path) if part.exists()]
        return [line for part in there for line in part.read_text().splitlines()]


def test_a_full_one_is_put_aside_and_the_oldest_goes() -> None:
    with directories():
        log = Log(paths_for(), 1200)
        for _ in range(20):
            log.write(25)
            log.file.check()
        assert log.path.stat().st_size <= 1200
        kept = log.all()
        assert kept == [f"line {number:06}" for number in range(500 - len(kept), 500)]
        assert len(kept) >= KEPT * 100
        names = sorted(path.name for path in log.path.parent.iterdir())
        assert names == ["daemon.log", *(f"daemon.log.{n}" for n in range(1, KEPT + 1))]
        assert {path.stat().st_mode & 0o777 for path in log.path.parent.iterdir()} == {0o600}
        os.close(log.fd)


def test_what_children_write_comes_after() -> None:
    """They hold the same open file: it is emptied, not replaced."""
    with directories():
        log = Log(paths_for(), 100)
        log.write(20)
        child = os.dup(log.fd)
        log.file.check()
        os.write(child, b"from a child\n")
        assert log.path.read_text() == "from a child\n"
        os.close(child)
        os.close(log.fd)


def test_another_file_than_ours_is_left_alone(tmp_path: Path) -> None:
    with directories():
        log = Log(paths_for(), 100)
        log.write(20)
        log.path.rename(tmp_path / "moved")
        log.path.write_text("somebody else's\n" * 100)
        log.file.check()
        assert (tmp_path / "moved").stat().st_size == 240
        assert not older(log.path, 1).exists()
        os.close(log.fd)


def test_it_is_followed_while_it_is_put_aside(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every line once, in order, whether it was read before or after the file was put aside."""
    for name, value in place.env.items():
        monkeypatch.setenv(name, value)
    log = Log(paths_for(), 1000)
    log.write(10)
    following = place.start("daemon", "logs", "-f", "-n", "3")
    out = following.process.stdout
    assert out is not None
    seen = [out.readline() for _ in range(3)]
    for _ in range(40):
        log.write(37)
        log.file.check()
        seen += [out.readline() for _ in range(37)]
    assert [int(line.split()[1]) for line in seen] == list(range(7, 10 + 40 * 37))
    assert older(log.path, KEPT).exists()
    os.close(log.fd)
    following.send(signal.SIGTERM)
    following.finish(143)


def test_more_lines_than_the_file_has_come_from_the_part_before(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in place.env.items():
        monkeypatch.setenv(name, value)
    log = Log(paths_for(), 100)
    log.write(20)
    log.file.check()
    log.write(2)
    os.close(log.fd)
    said = place.run("daemon", "logs", "-n", "5").out.decode().split()[1::2]
    assert said == ["000017", "000018", "000019", "000020", "000021"]
    assert place.run("daemon", "logs").out.count(b"line") == 22


def test_what_happens_in_a_daemon_is_in_its_log_without_a_word_of_anybodys_text(
    place: Place,
) -> None:
    words = ("run", *SCRIPTED, "--json", "--steps", "3", "--as", "ann", "a secret prompt")
    session = place.json(*words)[0]["session"]
    pid = place.status()["engine"]["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: place.status()["engine"].get("pid") not in (None, pid))
    wait_for(lambda: place.status()["engine"]["word"] == "ready")
    log = place.run("daemon", "logs").out.decode()
    for part in (
        "ready: scripted on ",
        f"session {session}: opened",
        "attached: 'ann",
        f"session {session}: closed, ",
        "left: 'ann",
        f"killed by SIGKILL (pid {pid})",
        f"the engine is started again: start 2, pid {place.status()['engine']['pid']}",
    ):
        assert part in log, (part, log)
    assert log.count("ready: scripted on ") == 2
    assert "secret" not in log
