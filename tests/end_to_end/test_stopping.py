"""What a daemon leaves behind that is stopped, or ends, and what the next one is told of it."""

import io
import json
import os
import signal

import pytest

from engine_daemon.cli import daemon as daemon_commands
from engine_daemon.cli.options import Given
from engine_daemon.lookup import is_running
from engine_daemon.protocol.state import State
from tests.daemons import running_daemon, wait_for
from tests.end_to_end.command import SCRIPTED, Place, alive

SLOW = ("--engine", "scripted", "--model", "scripted:rate=40")


@pytest.mark.parametrize("verb", ["stop", "restart"])
def test_a_script_that_stops_a_daemon_in_use_is_told_of_it(place: Place, verb: str) -> None:
    """It is not asked, and nothing is lost."""
    run = place.start("run", *SLOW, "--json", "--as", "ann", "Hello")
    session = run.until("step", 2)["session"]
    done = place.run("daemon", verb)
    assert "attached until then: ann (run " in done.err
    assert f"ran until then: {session}; it stands where the log ends" in done.err
    assert f"llm-inspect resume {session} goes on" in done.err
    steps = [line for line in run.finish(4).lines if line["event"] == "step"]
    place.run("daemon", "start", *SLOW)
    seen = place.session(session)
    assert seen["status"] == "paused"
    assert seen["place"]["step"] > steps[-1]["step"] if steps else 2
    place.run("resume", session)
    wait_for(lambda: place.session(session)["place"]["step"] > seen["place"]["step"])


def test_a_daemon_that_nobody_uses_stops_with_one_line(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    place.run("run", "--steps", "2", "--keep", "Hello")
    assert len(place.run("daemon", "stop").err.splitlines()) == 1


def test_without_a_terminal_nobody_is_asked_before_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that does not answer would be waited for, twice; a stop has two seconds."""

    def never(_: object) -> State:
        raise AssertionError("asked for its state")

    monkeypatch.setattr(daemon_commands, "state_of", never)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with running_daemon() as daemon:
        assert daemon_commands.stop_command(Given()) == 0
        assert not is_running(daemon.paths)


def test_a_start_without_the_options_of_the_last_daemon_says_so(place: Place) -> None:
    """After a crash, say: everything there was made with another model."""
    place.run("daemon", "start", *SLOW)
    pid = place.status()["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid))
    said = place.run("daemon", "start", "--engine", "scripted").err
    restart = "llm-inspect daemon restart --engine scripted --model scripted:rate=40"
    assert f"note: the last daemon default had other options; to have them: {restart}" in said
    place.run(*restart.split()[1:])
    (path,) = (place.root / "state").rglob("options.json")
    assert json.loads(path.read_text())["engine"]["model"] == "scripted:rate=40"
    # With the same ones there is nothing to say; nor where they are typed again.
    place.run("daemon", "stop")
    assert "note:" not in place.run("run", "--steps", "1", *SLOW, "Hello").err


def test_the_restart_that_is_named_can_be_typed(place: Place) -> None:
    place.run("daemon", "start", "--name", "a.b", "--engine", "scripted", "--max-context", "64")
    place.run("daemon", "stop", "--name", "a.b")
    said = place.run("run", "--name", "a.b", "--steps", "1", "--engine", "scripted", "Hello").err
    assert "llm-inspect daemon restart --name a.b --engine scripted --model " in said
    assert "--max-context 64" in said
