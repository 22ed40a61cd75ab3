"""A worker that floods: the hub holds it back, and no viewer loses anything by it."""

import asyncio
from collections.abc import Callable

import psutil
import pytest

from engine_daemon.client import DaemonClient
from engine_daemon.protocol import commands as cmd
from engine_daemon.recording.reader import Recording
from tests.daemons import PATIENCE_S, attached, running_daemon, watching

STEPS = 15_000
A_STEP = 100
"""Bytes of the hub's memory that a step may keep (its columns)."""
SLACK = 24 * 1024 * 1024
"""Windows of three viewers, and what an allocator keeps."""


@pytest.mark.fault("E5")
async def test_a_flood_is_held_back_by_the_log_and_by_no_viewer(
    record_property: Callable[[str, object], None],
) -> None:
    """As fast as the engine can, with one viewer that reads nothing at all: were there a queue for
    it, or for what the log does not take at once, memory would grow by 1 kB an event."""
    with running_daemon(f"scripted:rate=0,context={STEPS + 100}") as daemon:
        hub = psutil.Process(daemon.pid)
        async with watching(daemon.paths, run_to=5, candidates=20) as watch:
            await watch.standing(5)
            async with DaemonClient(daemon.paths, client="deaf") as deaf:
                deaf.follow(watch.session)  # nobody takes its updates: no credit comes back
                before = hub.memory_info().rss
                began = asyncio.get_running_loop().time()
                await watch.run_to(STEPS)
                async with asyncio.timeout(PATIENCE_S * 3):
                    while watch.columns.place.step < STEPS:
                        await asyncio.sleep(0.1)
                spent = asyncio.get_running_loop().time() - began
                grown = hub.memory_info().rss - before
                lags = {v.client.split()[0]: v.lag for v in deaf.state.viewers}
                assert lags["deaf"] > STEPS
            await watch.standing(STEPS)
            assert [seq for seq, _ in watch.events] == list(range(watch.columns.next))
            assert grown < STEPS * A_STEP + SLACK
            rate = 2 * STEPS / spent
            record_property("figure", f"{rate:,.0f} events/s, hub +{grown / 1e6:.1f} MB, 0 lost")
            async with attached(daemon.paths, watch.session) as late:
                columns = await late.standing(STEPS)
                assert columns.ids.tolist() == watch.columns.ids.tolist()
            path = daemon.paths.recordings / f"{watch.session}.lir"
            await watch.client.command(cmd.Close(), watch.session)
            await watch.until(lambda c: c.closed)
        with Recording.open(path) as recording:
            assert (recording.state, recording.holes) == ("ok", [])
            assert list(recording.events())[: len(watch.events)] == watch.events
