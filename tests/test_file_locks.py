"""Who holds a lock, by the system's table."""

import fcntl
import os
from pathlib import Path

import pytest

from engine_daemon import file_locks
from engine_daemon.file_locks import holders


def test_who_holds_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        assert holders(path) == []
        fcntl.flock(file, fcntl.LOCK_EX)
        assert holders(path) == [os.getpid()]
        (tmp_path / "link").symlink_to("a")
        assert holders(tmp_path / "link") == [os.getpid()]
    assert holders(path) == []


def test_files_of_which_nothing_is_known(tmp_path: Path) -> None:
    assert holders(tmp_path / "none") == []
    (tmp_path / "loop").symlink_to("loop")
    assert holders(tmp_path / "loop") == []
    os.mkfifo(tmp_path / "pipe")  # nobody waits for its other end
    assert holders(tmp_path / "pipe") == []


def test_the_same_inode_of_another_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the row of this file's own device counts, though the numbers of inodes are alike."""
    path, table = tmp_path / "a", tmp_path / "locks"
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        rows = Path("/proc/locks").read_text("ascii").splitlines()
        (row,) = [row for row in rows if f":{path.stat().st_ino} " in row and "FLOCK" in row]
    major, minor, inode = row.split()[5].split(":")
    monkeypatch.setattr(file_locks, "TABLE", table)
    for device, found in (
        (f"{major}:{minor}", [os.getpid()]),
        (f"{major}:{int(minor, 16) + 1:02x}", []),
        (f"{int(major, 16) + 1:02x}:{minor}", []),
    ):
        table.write_text(row.replace(f"{major}:{minor}:{inode}", f"{device}:{inode}") + "\n")
        assert holders(path) == found
