"""Caches that nobody uses are given back, and had again by the next command."""

import asyncio

import msgspec

from engine_daemon.client import DaemonClient
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.values import PromptSpec
from tests.daemons import PATIENCE_S, Daemon, attached, directories


async def test_a_session_that_nobody_looks_at_gives_its_cache_back() -> None:
    with directories():
        daemon = Daemon()
        daemon.options = msgspec.structs.replace(daemon.options, idle_cache_s=0.1)
        with daemon:
            async with DaemonClient(daemon.paths, client="test") as client:
                reply = await client.command(
                    cmd.Open(prompt=PromptSpec(text=b"Hello there"), run_to=6)
                )
                async with asyncio.timeout(PATIENCE_S):
                    async for _ in client.updates():
                        state = next(iter(client.state.sessions), None)
                        if state and state.place.step == 6 and not state.resident:
                            break
            assert reply.session is not None
            async with attached(daemon.paths, reply.session) as watch:
                columns = await watch.until(lambda c: len(c) == 6)
                events = [unpack_event(packed) for _, packed in watch.events]
                (released,) = [one for one in events if isinstance(one, ev.CacheReleased)]
                assert (released.why, released.step) == ("cache", 6)
                assert columns.pending is not None
                assert released.bytes == columns.pending.cache.allocated_bytes
                assert released.bytes
                await watch.run_to(8)
                await watch.standing(8)
                assert len(columns) == 8
