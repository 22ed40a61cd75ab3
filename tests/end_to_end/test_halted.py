"""Processes of a daemon that somebody halts: named, left alone, and how they go on is said."""

import fcntl
import json
import os
import signal
import socket

import pytest

from engine_daemon.lookup import is_halted
from engine_daemon.paths import short_hash
from tests.daemons import children, wait_for
from tests.end_to_end.command import Place

SLOW = ("--engine", "scripted", "--model", "scripted:rate=40")


def test_a_stuck_engine_of_a_daemon_with_a_name(place: Place) -> None:
    """What ends it names the daemon, wherever it is said."""
    place.run("daemon", "start", "--name", "s", *SLOW)
    engine = json.loads(place.run("daemon", "status", "--name", "s", "--json").out)["engine"]["pid"]
    run = place.start("run", "--name", "s", "Hello")
    os.kill(engine, signal.SIGSTOP)
    try:
        aside = run.said("the run waits")
        status = place.run("daemon", "status", "--name", "s", "--json").out
        run.send(signal.SIGTERM)
        run.finish(143)
    finally:
        os.kill(engine, signal.SIGCONT)
    ends = "llm-inspect daemon restart --name s ends it"
    assert ends in aside
    assert ends in json.loads(status)["engine"]["hint"]


def test_a_halted_daemon_is_marked_in_the_list(place: Place) -> None:
    """It is not waited for, and the others are listed beside it."""
    for name in ("one", "two"):
        place.run("daemon", "start", "--name", name, *SLOW)
    pids = {row["name"]: row["pid"] for row in place.json("daemon", "list", "--json")}
    os.kill(pids["two"], signal.SIGSTOP)
    try:
        wait_for(lambda: is_halted(pids["two"]))
        states = {row["name"]: row["state"] for row in place.json("daemon", "list", "--json")}
        head, one, two = place.run("daemon", "list").out.decode().splitlines()
    finally:
        os.kill(pids["two"], signal.SIGCONT)
    assert states == {"one": "ready", "two": "halted"}
    assert head.split() == ["NAME", "PID", "UP", "VERSION", "STATE"]
    assert one.endswith("  ready")
    assert two.endswith(f"  halted: kill -CONT {pids['two']} lets it go on")


def test_a_daemon_that_says_nothing_is_marked_in_the_list(place: Place) -> None:
    """This process plays one: it holds the lock, and answers nobody on its socket."""
    folder = place.root / "run" / short_hash("quiet")
    folder.mkdir(mode=0o700)
    viewers = folder / "v.sock"
    with (folder / "lock").open("w") as lock, socket.socket(socket.AF_UNIX) as listening:
        fcntl.flock(lock, fcntl.LOCK_EX)
        listening.bind(str(viewers))
        listening.listen()
        there = {"viewers": f"ipc://{viewers}", "name": "quiet", "version": "0", "started": 1.0}
        connection = folder / "conn.json"
        connection.write_text(json.dumps(there | {"pid": os.getpid()}))
        connection.chmod(0o600)
        place.run("daemon", "start", *SLOW)
        listed = place.run("daemon", "list").out.decode()
        states = {row["name"]: row["state"] for row in place.json("daemon", "list", "--json")}
        connection.unlink()
    assert states == {"default": "ready", "quiet": "no_answer"}
    assert "  does not answer: llm-inspect daemon restart --name quiet\n" in listed


@pytest.mark.fault("E4")
def test_a_tokens_process_that_is_halted_is_named_and_left_alone(place: Place) -> None:
    place.run("daemon", "start", *SLOW)
    tokens = children(place.status()["pid"])["tokens"]
    tokens.suspend()
    try:
        waits = [
            place.start("run", *words, "Hello") for words in (["--json"], ["--until", "token='x'"])
        ]
        done, again = (one.finish(4) for one in waits)
    finally:
        tokens.resume()
    said = (
        f"the tokens process is halted (SIGSTOP or a debugger), pid {tokens.pid}",
        f"kill -CONT {tokens.pid} lets it go on; then try again",
    )
    assert (done.lines[-1]["message"], done.lines[-1]["hint"]) == said
    assert again.err.splitlines()[-2:] == [f"llm-inspect: {said[0]}", said[1]]
    assert tokens.is_running()
    place.run("run", "--steps", "2", "Hello")
    assert children(place.status()["pid"])["tokens"].pid == tokens.pid


@pytest.mark.fault("E4")
def test_a_tokens_process_that_is_halted_before_it_has_loaded_is_named(place: Place) -> None:
    """It is another one: the first was killed, and this one has not read its tokenizer."""
    place.run("daemon", "start", *SLOW)
    hub = place.status()["pid"]
    first = children(hub)["tokens"]
    first.kill()
    wait_for(lambda: children(hub).get("tokens", first).pid != first.pid)
    tokens = children(hub)["tokens"]
    tokens.suspend()  # long before it has imported what it needs
    try:
        run = place.start("run", "--steps", "2", "Hello")
        asides = [run.said("tokens process is halted")]
        starts = place.start("daemon", "start", *SLOW)
        asides.append(starts.said("tokens process is halted"))
        engine = place.status()["engine"]
    finally:
        tokens.resume()
    ends = f"kill -CONT {tokens.pid} lets it go on, llm-inspect daemon restart ends it"
    assert ends in asides[0]
    assert ends in asides[1]
    assert (engine["word"], engine["hint"]) == ("stuck", ends)
    assert run.finish(0).out
    starts.finish(0)
