"""Interrupts of a task: early ones end it, later ones are kept."""

import asyncio
import signal
import subprocess
import sys

import pytest

from engine_daemon.cli.interrupts import Interrupts
from engine_daemon.cli.signals import held_back


async def turn() -> None:
    """Let the loop see a signal."""
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(0.05)


async def test_before_anything_is_held_it_cancels() -> None:
    async def work() -> Interrupts:
        interrupts = Interrupts()
        try:
            await turn()
        except asyncio.CancelledError:
            return interrupts
        raise AssertionError("it went on")

    interrupts = await asyncio.create_task(work())
    assert interrupts.came
    with pytest.raises(asyncio.CancelledError):
        interrupts.hold()


async def test_while_something_is_left_behind_it_waits() -> None:
    interrupts, led = Interrupts(), []
    interrupts.hold()
    await turn()
    assert interrupts.came
    interrupts.lead_to(lambda: led.append("held"))
    assert led == ["held"]
    await turn()
    assert led == ["held", "held"]


def test_what_arrives_while_it_is_held_back_comes_after() -> None:
    came = False
    try:
        with held_back():
            signal.raise_signal(signal.SIGINT)
            came = True
    except KeyboardInterrupt:
        assert came
    else:
        raise AssertionError("it never came")


INTERRUPTED_WHILE_PARSING = """
import os, signal, sys
from tui import dispatch
def look(frame, event, value):
    name = frame.f_code.co_name
    if not frame.f_code.co_filename.endswith("cli/parser.py"):
        return
    if event == "call" and name == "_options":
        os.kill(os.getpid(), signal.SIGINT)
    if event == "return" and name == "parse" and value is not None:
        print("parsed")
sys.setprofile(look)
sys.exit(dispatch.run_line(["run", "--steps", "1", "Hello"]))
"""


def test_an_interrupt_while_options_are_read_waits_until_they_are() -> None:
    """Inside of msgspec it crashed the process, once in thirty."""
    script = [sys.executable, "-c", INTERRUPTED_WHILE_PARSING]
    done = subprocess.run(script, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (130, b"parsed\n"), done.stderr
