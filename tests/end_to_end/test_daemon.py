"""`daemon` and its verbs."""

import os
import signal
from pathlib import Path

import pytest

from tests.daemons import wait_for
from tests.end_to_end.command import SCRIPTED, Place, alive

HOSTILE = ("grp", "json", "queue", "tokenizers", "textual", "zmq", "engine_daemon", "tui")


def test_its_whole_life(place: Place) -> None:
    started = place.run("daemon", "start", *SCRIPTED)
    assert "is ready" in started.err
    assert "synthetic" in started.err
    again = place.run("daemon", "start", *SCRIPTED)
    assert "running already" in again.err
    status = place.status()
    assert status["engine"]["word"] == "ready"
    assert status["name"] == "default"
    assert status["viewers"] == []  # who asks is no viewer
    assert "viewer" not in place.run("daemon", "status").out.decode()
    assert "ready" in place.run("daemon", "status").out.decode()
    (listed,) = place.json("daemon", "list", "--json")
    assert listed["pid"] == status["pid"]
    assert "llm-inspect" in place.run("daemon", "logs").out.decode()
    assert place.run("daemon", "logs", "--lines", "0").out == b""
    place.run("daemon", "stop")
    assert not alive(status["pid"])
    assert not alive(status["engine"]["pid"])
    assert "no daemon is running" in place.run("daemon", "list").out.decode()


def test_without_a_daemon(place: Place) -> None:
    for words in (("daemon", "stop"), ("daemon", "status"), ("pause", "K"), ("step", "K")):
        done = place.run(*words, code=4)
        assert "no daemon named default is running" in done.err
        assert "llm-inspect daemon start" in done.err
    assert "no log" in place.run("daemon", "logs", code=4).err


def test_it_leaves_the_terminal_that_started_it(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    pid = place.status()["pid"]
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    os.kill(pid, signal.SIGHUP)
    assert place.status()["pid"] == pid


def test_a_folder_that_is_not_there_is_said_first(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    for words in (("daemon", "start"), ("daemon", "restart"), ("run", "Hi")):
        done = place.run(*words, "--model", "./missing", code=3)
        assert f"there is no folder {place.cwd / 'missing'}" in done.err
        assert "restart" not in done.err
    assert place.status()["engine"]["word"] == "ready"
    assert "there is no file" in place.run("run", "Hi", "--model", "a.gguf", code=3).err


def test_other_options_are_refused(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    for words in (("--dtype", "fp32"), ("--engine", "hf"), ("--idle-exit", "5m")):
        done = place.run("run", *words, "Hi", code=4)
        assert "asked for was" in done.err
        assert "daemon restart" in done.err
        assert place.run("daemon", "start", *words, code=4).code == 4
    place.run("run", "--steps", "1", *SCRIPTED, "Hi")


def test_what_the_configuration_asks_for(place: Place) -> None:
    folder = place.root / "config" / "llm-inspect"
    folder.mkdir(parents=True)
    file = folder / "config.toml"
    file.write_text('[daemon.default]\nengine = "scripted"\nmodel = "scripted:rate=0"\n', "utf-8")
    place.run("run", "--steps", "1", "Hi")
    assert place.status()["engine"]["synthetic"] is True
    file.write_text('[daemon.default]\nengnie = "scripted"\n', "utf-8")
    done = place.run("run", "--steps", "1", "Hi", code=2)
    assert "Did you mean engine?" in done.err


def test_a_configuration_that_changed_is_named_with_a_restart_that_works(place: Place) -> None:
    file = place.root / "config" / "llm-inspect" / "config.toml"
    file.parent.mkdir(parents=True)
    place.run("daemon", "start", *SCRIPTED)
    file.write_text('[daemon.default]\nspool_bytes = 5000000\nstuck = "9s"\n', "utf-8")
    told = place.run("run", "--steps", "1", "Hi").err
    assert "config.toml asks for spool_bytes 5000000" in told
    assert "config.toml asks for stuck 9s" in told
    file.write_text('[daemon.default]\nidle_exit = "5m"\nspool_bytes = 5000000\n', "utf-8")
    refused = place.run("run", "Hi", code=4).err
    assert "config.toml asks for idle_exit 5m" in refused
    assert "Restart it: llm-inspect daemon restart;" in refused
    place.run("daemon", "restart")
    assert place.run("run", "--steps", "1", "Hi").err == ""


def test_a_wrong_configuration_is_in_nobodys_way_who_looks_or_stops(place: Place) -> None:
    config = place.root / "config" / "llm-inspect" / "config.toml"
    place.run("daemon", "start", *SCRIPTED)
    config.parent.mkdir(parents=True, exist_ok=True)
    for text, words in (("[paths]\nsate = '/x'", "Did you mean state?"), ("x =", "cannot read")):
        config.write_text(text, "utf-8")
        for verb in ("status", "logs", "list"):
            done = place.run("daemon", verb)
            assert done.out
            assert len(done.err.splitlines()) == 1
            assert f"warning: {config}" in done.err or f"warning: cannot read {config}" in done.err
            assert words in done.err
        for command in (("daemon", "start"), ("daemon", "restart"), ("run", "Hi"), ("sessions",)):
            assert str(config) in place.run(*command, code=2).err
    pid = place.status()["pid"]
    place.run("daemon", "stop")
    assert not alive(pid)


def test_restart_keeps_the_options_and_the_sessions(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED, "--idle-exit", "3h")
    session = place.json("run", "--json", "--steps", "3", "--keep", "Hi")[-1]["session"]
    before = place.session(session)
    first = place.status()["pid"]
    place.run("daemon", "restart", "--idle-exit", "4h")
    status = place.status()
    assert status["pid"] != first
    assert status["engine"]["synthetic"] is True
    assert status["idle_exit_s"] == 4 * 3600
    after = place.session(session)
    assert (after["place"], after["title"]) == (before["place"], before["title"])


def test_not_waiting_for_the_model(place: Place) -> None:
    slow = ("--engine", "scripted", "--model", "scripted:load_ms=60000")
    place.run("daemon", "start", *slow, "--no-wait")
    status = place.status()
    assert status["engine"]["word"] in ("starting", "loading")
    place.run("daemon", "stop")
    assert not alive(status["pid"])


def test_interrupted_while_the_model_loads(place: Place) -> None:
    slow = ("--engine", "scripted", "--model", "scripted:load_ms=60000")
    for words in (("daemon", "start"), ("run", "Hi")):
        started = place.start(*words, *slow)
        started.said("loading the weights")
        started.send(signal.SIGINT)
        assert "goes on" in started.finish(130).err
        place.run("daemon", "stop")


def test_a_model_that_cannot_be_loaded_ends_the_daemon(place: Place) -> None:
    failing = ("--engine", "scripted", "--model", "scripted:load_fail=1")
    done = place.run("daemon", "start", *failing, code=3)
    assert len([line for line in done.err.splitlines() if line.startswith("llm-inspect:")]) >= 1
    wait_for(lambda: list(place.connections()) == [])
    run = place.run("run", *failing, "--json", "Hi", code=3)
    assert [line["event"] for line in run.lines] == ["error"]


def test_idle_exit_with_the_last_viewer(place: Place) -> None:
    place.run("run", *SCRIPTED, "--idle-exit", "0", "--steps", "1", "Hi")
    wait_for(lambda: list(place.connections()) == [])


def test_several_start_it_at_the_same_moment(place: Place) -> None:
    starts = [place.start("daemon", "start", *SCRIPTED) for _ in range(3)]
    said = [start.finish(0).err for start in starts]
    assert sum("is ready" in text for text in said) == 1
    assert sum("running already" in text for text in said) == 2


def test_a_halted_daemon_is_stopped(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    pid = place.status()["pid"]
    os.kill(pid, signal.SIGSTOP)
    place.run("daemon", "stop")
    assert not alive(pid)


def test_a_daemon_that_ends_at_once_says_why(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    place.run("daemon", "stop")
    (place.root / "run" / "37a8eec1" / "v.sock").write_bytes(b"")
    done = place.run("daemon", "start", *SCRIPTED, code=4)
    assert "v.sock is a file, where the daemon needs a socket" in done.err
    assert "Move it away" in done.err


def test_two_daemons(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    place.run("daemon", "start", "--name", "second", *SCRIPTED)
    names = {row["name"] for row in place.json("daemon", "list", "--json")}
    assert names == {"default", "second"}
    kept = place.run("run", "--name", "second", "--steps", "1", "--keep", "--json", "Hi")
    assert "llm-inspect attach second --session" in kept.err
    assert place.status()["sessions"] == []


def test_a_name_may_begin_with_a_dash(place: Place) -> None:
    place.run("daemon", "start", "--name=-x", *SCRIPTED)
    assert place.json("daemon", "list", "--json")[0]["name"] == "-x"
    place.run("daemon", "stop", "--name=-x")


@pytest.mark.parametrize("words", [("run", *SCRIPTED, "--steps", "1", "Hi")])
def test_modules_in_the_working_directory_are_never_imported(
    place: Place, words: tuple[str, ...]
) -> None:
    for name in HOSTILE:
        mark = f"open({str(place.root / 'imported')!r}, 'a').write({name!r})\n"
        (place.cwd / f"{name}.py").write_text(mark, "utf-8")
    place.run(*words)
    place.run("daemon", "restart")
    assert not Path(place.root / "imported").exists()


def test_a_halted_engine_is_said_to_be_waited_for(place: Place) -> None:
    place.run("daemon", "start", "--engine", "scripted", "--model", "scripted:rate=40")
    run = place.start("run", "--engine", "scripted", "--json", "--candidates", "2", "Hello")
    session = run.until("step", 1)["session"]
    engine = place.status()["engine"]["pid"]
    os.kill(engine, signal.SIGSTOP)
    try:
        pause = place.start("pause", session)
        assert "has not got there yet" in pause.said("was asked")
    finally:
        os.kill(engine, signal.SIGCONT)
    pause.finish(0)
    run.send(signal.SIGINT)
    run.finish(130)
