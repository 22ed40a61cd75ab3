"""Interrupts of a task: early ones end it, later ones are kept."""

import asyncio
import signal

import pytest

from engine_daemon.cli.interrupts import Interrupts


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
