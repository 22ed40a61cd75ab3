"""Processes of a daemon that somebody halts: named, left alone, and how they go on is said."""

import json
import os
import signal

import pytest

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
