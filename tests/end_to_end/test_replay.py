"""`replay` in a real terminal: no daemon, no engine; a file that a run is writing."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.end_to_end.command import SCRIPTED, Place
from tests.export.samples import samples

_HEAD = re.compile(r"step \d+ of (\d+)")


def test_play_seek_and_leave_without_any_daemon(place: Place) -> None:
    live = place.run(
        "run", *SCRIPTED, "--steps", "30", "--json", "--record", "a.lir", "Once upon a time"
    )
    steps = [line for line in live.lines if line["event"] == "step"]
    place.run("daemon", "stop")
    with place.terminal("replay", "a.lir") as terminal:
        picture = terminal.until("step 0 of 29")
        assert "▶ REPLAY" in picture
        assert "SYNTHETIC" in picture
        terminal.press("2", "0", "G")
        terminal.until("NEXT TOKEN · step 20")
        entropy = f"entropy {steps[20]['entropy_bits']:.2f} bits"
        terminal.until(entropy)
        terminal.press("p")
        terminal.until("a replay has no engine")
        terminal.press(">", ">", ">", "space")
        terminal.until("step 29 of 29")
        terminal.press("g")
        terminal.until("NEXT TOKEN · step 0")
        terminal.press("q")
        terminal.finish()
    assert list(place.connections()) == []
    assert place.run("daemon", "status", code=None).code != 0


@pytest.mark.fault("R6")
def test_a_run_that_is_being_written_is_followed(place: Place) -> None:
    slow = ("--engine", "scripted", "--model", "scripted:rate=30")
    words = ("--json", "--candidates", "2", "--record", "a.lir", "On")  # lines the pipe holds
    run = place.start("run", *slow, *words)
    run.until("step", 5)
    with place.terminal("replay", "a.lir") as terminal:
        terminal.until("▶ REPLAY")
        terminal.until(lambda picture: max(map(int, _HEAD.findall(picture)), default=0) >= 30)
        run.send(signal.SIGINT)
        lines = run.finish(130).lines
        last = max(line["step"] for line in lines if line["event"] in ("step", "pending"))
        terminal.until(f"step {last} of {last}")
        terminal.press("q")
        terminal.finish()


def test_what_is_missing_is_named_after_leaving(place: Place) -> None:
    samples(place.cwd)
    with place.terminal("replay", "damaged.lir") as terminal:
        terminal.until("DAMAGED")
        terminal.press("q")
        assert "event 8 is missing" in terminal.finish()


def test_it_needs_a_terminal(place: Place) -> None:
    samples(place.cwd)
    assert "needs a terminal" in place.run("replay", "whole.lir", code=2).err
    assert "there is no file nofile.lir" in place.run("replay", "nofile.lir", code=2).err


@pytest.mark.fault("S8")
def test_neither_torch_nor_a_daemons_half_is_loaded(place: Place) -> None:
    """What `replay` imports, in an interpreter of its own."""
    script = "import json, sys, tui.replay; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, env=os.environ, check=True
    )
    loaded = set(json.loads(done.stdout))
    assert not loaded & {"torch", "transformers", "tokenizers", "engine_daemon.hub.hub", "numpy"}
