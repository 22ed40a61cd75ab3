"""Which files of a folder are recordings."""

import os
from pathlib import Path

from engine_daemon.recording.folder import recordings_in


def test_regular_files_only(tmp_path: Path) -> None:
    for name in ("B.lir", "A.lir", "A.txt", "AB.lir"):
        (tmp_path / name).write_bytes(b"")
    os.mkfifo(tmp_path / "F.lir")
    (tmp_path / "D.lir").mkdir()
    (tmp_path / "L.lir").symlink_to("/dev/zero")
    (tmp_path / "M.lir").symlink_to(tmp_path / "A.lir")
    assert [path.name for path in recordings_in(tmp_path)] == ["A.lir", "AB.lir", "B.lir"]
    assert [path.name for path in recordings_in(tmp_path, "AB")] == ["AB.lir"]


def test_no_folder(tmp_path: Path) -> None:
    assert recordings_in(tmp_path / "none") == []
