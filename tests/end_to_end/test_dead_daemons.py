"""Every command against a daemon that is gone, or is there and says nothing: two lines, no wait."""

import os
import signal

import pytest

from tests.daemons import wait_for
from tests.end_to_end.command import SCRIPTED, Place, alive
from tests.end_to_end.test_bad_input import complaint

ASKING = (
    ("daemon", "status"),
    ("daemon", "stacks"),
    ("pause", "K"),
    ("resume", "K"),
    ("step", "K"),
    ("force", "K", "--id", "3"),
    ("close", "K"),
)


@pytest.fixture
def pid(place: Place) -> int:
    """Of a daemon with an open session."""
    place.json("run", *SCRIPTED, "--json", "--keep", "--steps", "0", "Hello")
    return int(place.status()["pid"])


def test_one_that_was_killed_is_not_running(place: Place, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid))
    for words in ASKING:
        said = complaint(place.run(*words, code=4).err)
        assert said[0] == "llm-inspect: no daemon named default is running", words
        assert len(said) <= 2, words
    assert place.json("daemon", "list", "--json") == []
    with place.terminal("attach") as terminal:
        assert "no daemon named default is running" in terminal.finish(4)


def test_one_that_is_halted_is_said_to_be(place: Place, pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    try:
        # All at once: each waits for an answer until it gives up.
        asking = {words: place.start(*words) for words in ASKING}
        with place.terminal("attach") as terminal:
            for words, asked in asking.items():
                said = complaint(asked.finish(4).err)
                assert "is halted (SIGSTOP or a debugger)" in said[0], words
                assert f"kill -CONT {pid} lets it go on" in said[1], words
            assert f"kill -CONT {pid}" in terminal.finish(4)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert place.status()["pid"] == pid


def test_long_paths_of_home_and_temporary_files_are_in_no_sockets_way(place: Place) -> None:
    deep = place.root / ("d" * 150)
    deep.mkdir()
    for variable in ("HOME", "TMPDIR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        place.env[variable] = str(deep)
    place.run("run", *SCRIPTED, "--steps", "1", "Hello")
    place.run("daemon", "stop")
    place.env["LLM_INSPECT_RUNTIME_DIR"] = str(deep)
    said = complaint(place.run("run", *SCRIPTED, "Hello", code=4).err)
    assert "too deep for a socket" in said[0]
    assert "LLM_INSPECT_RUNTIME_DIR" in said[1]
