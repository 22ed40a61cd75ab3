"""`--record FILE`."""

import os
from pathlib import Path

import pytest

from engine_daemon.cli.record import Recorder
from engine_daemon.errors import Exit, InspectError
from engine_daemon.recording.format import frame


def test_frames_in_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "a.lir"
    with Recorder(str(path)) as recorder:
        recorder.write(0, b"one")
        recorder.write(1, b"two")
        recorder.check()
    assert path.read_bytes() == frame(0, b"one") + frame(1, b"two")
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.lir"
    path.write_bytes(b"precious")
    with pytest.raises(InspectError, match="exists"):
        Recorder(str(path))
    assert path.read_bytes() == b"precious"


def test_an_empty_recording_is_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "a.lir"
    with Recorder(str(path)):
        assert path.exists()
    assert not path.exists()


def test_links_to_nothing_and_pipes(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nothing")
    with pytest.raises(InspectError, match="link to nothing"):
        Recorder(str(tmp_path / "link"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InspectError, match="exists"):
        Recorder(str(tmp_path / "pipe"))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InspectError, match="cannot record") as raised:
        Recorder(str(tmp_path / "none" / "a.lir"))
    assert raised.value.exit_code is Exit.USAGE


def test_a_full_disk() -> None:
    with Recorder("/dev/full") as recorder:
        told = recorder.write(0, b"one")
        assert told.startswith("/dev/full is cut at event 0: No space")
        assert recorder.write(1, b"two") == ""  # once
        with pytest.raises(InspectError, match="cut at event 0: No space") as raised:
            recorder.check()
    assert raised.value.exit_code is Exit.DAEMON


def test_what_is_left_of_a_cut_recording() -> None:
    for private, words in ((False, "own recording is whole"), (True, "keeps none either")):
        with Recorder("/dev/full", private=private) as recorder:
            recorder.write(0, b"one")
            with pytest.raises(InspectError) as raised:
                recorder.check()
        assert words in raised.value.hint


def test_without_a_name_nothing_happens() -> None:
    with Recorder(None) as recorder:
        recorder.write(0, b"one")
