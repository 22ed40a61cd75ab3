"""An engine that hangs: it is called stuck, can be looked into and ended, and is left alone."""

import asyncio
import os
import signal
import time
from collections.abc import Callable

import psutil
import pytest

from engine_daemon.client import DaemonClient
from engine_daemon.errors import InspectError
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.events import EngineStarted
from engine_daemon.protocol.reads import AskStacks
from engine_daemon.protocol.state import SessionInfo, Stuck
from tests.daemons import (
    Daemon,
    Watch,
    attached,
    children,
    directories,
    running_daemon,
    wait_for,
    watching,
)
from tests.hub.holding import held, holdable

PATIENCE_S = 1.0
HANGS = "scripted:rate=0,hang_at=30"
"""After 25 positions at the most of a prompt that is shorter."""


def stuck(watch: Watch) -> Stuck | None:
    engine = watch.client.state.engine
    return engine.details.stuck if engine.word == "stuck" else None


def why(watch: Watch) -> str:
    found = stuck(watch)
    return "" if found is None else found.why


def engine_at(watch: Watch) -> str:
    found = stuck(watch)
    return "" if found is None else found.phase


def info(watch: Watch) -> SessionInfo:
    (found,) = [s for s in watch.client.state.sessions if s.session == watch.session]
    return found


def word_is(watch: Watch, *words: str) -> Callable[[object], bool]:
    return lambda _: watch.client.state.engine.word in words


@pytest.mark.fault("E4")
async def test_a_stopped_worker_is_stuck_until_it_wakes_and_nothing_is_lost(
    record_property: Callable[[str, object], None],
) -> None:
    with running_daemon("scripted:rate=100", stuck_s=PATIENCE_S) as daemon:
        async with watching(daemon.paths, run_to=None, max_steps=100_000) as watch:
            await watch.until(lambda c: len(c) >= 3)
            worker = children(daemon.pid)["worker"]
            worker.suspend()
            await watch.until(lambda _: why(watch) == "halted")
            found = stuck(watch)
            assert found is not None
            assert found.ranks == [0]
            assert "halted (SIGSTOP)" in watch.client.state.engine.message

            asked = time.monotonic()
            async with asyncio.timeout(5.0):  # the reply is the hub's: no worker is asked
                await watch.client.command(cmd.Pause(), watch.session)
            took = time.monotonic() - asked
            record_property("figure", f"pause is accepted after {took * 1000:.0f} ms")
            await watch.until(lambda _: info(watch).pausing)
            assert info(watch).status == "running"
            answer = await watch.client.ask(AskStacks())
            assert answer.text == (
                f"is halted (SIGSTOP or a debugger): kill -CONT {worker.pid} lets it go on\n"
            )
            assert f"kill -CONT {worker.pid}" in watch.client.state.engine.hint
            async with attached(daemon.paths, watch.session) as late:  # whoever comes sees the same
                assert stuck(late) is not None
                await late.until(lambda c: c.next >= watch.columns.next)
            assert worker.is_running()

            worker.resume()
            await watch.until(word_is(watch, "ready", "busy"))
            columns = await watch.until(lambda c: c.status == "paused")
            assert columns.stop is not None
            assert columns.stop.reason == "pause"
            await watch.until(lambda _: not info(watch).pausing)
            await watch.run_to(columns.place.step + 5)
            await watch.standing(columns.place.step + 5)
            assert [seq for seq, _ in watch.events] == list(range(watch.columns.next))


@pytest.mark.fault("E4")
async def test_a_forward_that_never_ends_is_stuck_can_be_looked_into_and_ended() -> None:
    with running_daemon(HANGS, stuck_s=PATIENCE_S) as daemon:
        async with watching(daemon.paths, run_to=None) as watch:
            await watch.until(lambda _: why(watch) == "busy" and engine_at(watch) == "decode")
            before = children(daemon.pid)["worker"].pid
            answer = await watch.client.ask(AskStacks())
            assert "_misbehave" in (answer.text or "")

            await watch.client.command(cmd.Pause(), watch.session)
            await watch.until(lambda _: info(watch).pausing)
            assert children(daemon.pid)["worker"].pid == before  # nobody asked for more

            steps = len(watch.columns)
            await watch.client.command(cmd.KillEngine())
            columns = await watch.until(lambda c: c.status == "paused")
            assert columns.lost is not None
            assert columns.lost.message.startswith("the engine was ended by ")
            assert columns.stop is not None
            assert columns.stop.reason == "engine_lost"
            await watch.until(word_is(watch, "ready"))
            assert watch.client.state.engine.engine == 2
            assert not psutil.pid_exists(before)
            assert (len(columns), columns.branch) == (steps, 0)
            # What is read again does not hang; the next single step would.
            await watch.client.command(
                cmd.SetSampler(sampler=columns.sampler), watch.session, watch.at()
            )
            await watch.until(lambda c: c.pending is not None and c.status == "paused")
            starts = [
                event.engine
                for _, packed in watch.events
                if isinstance(event := unpack_event(packed), EngineStarted)
            ]
            assert starts == [1, 2]


@pytest.mark.fault("E4")
async def test_an_engine_that_is_ended_on_request_may_be_so_again_and_again() -> None:
    with running_daemon("scripted:rate=100") as daemon:
        async with watching(daemon.paths, run_to=2) as watch:
            await watch.standing(2)
            for start in range(2, 7):
                await watch.client.command(cmd.KillEngine())
                await watch.until(
                    lambda _, n=start: (  # type: ignore[misc]
                        (watch.client.state.engine.word, watch.client.state.engine.engine)
                        == ("ready", n)
                    )
                )


@pytest.mark.fault("E4")
async def test_an_observer_ends_no_engine() -> None:
    with running_daemon() as daemon:
        async with DaemonClient(daemon.paths, observe=True) as client:
            with pytest.raises(InspectError) as caught:
                await client.command(cmd.KillEngine())
            assert caught.value.code == "observer"
            assert client.state.engine.engine == 1


@pytest.mark.fault("E4")
async def test_a_worker_that_holds_python_writes_its_stacks_to_the_log() -> None:
    """SIGUSR1 is what the daemon sends when nothing answers; here it is sent by hand."""
    with running_daemon() as daemon:
        worker = children(daemon.pid)["worker"]
        os.kill(worker.pid, signal.SIGUSR1)
        async with watching(daemon.paths, run_to=1) as watch:
            await watch.standing(1)
        wait_for(lambda: "pulse.py" in daemon.paths.log.read_text())
        assert "most recent call first" in daemon.paths.log.read_text()
        assert worker.is_running()


@pytest.mark.pitfall("P31")
@pytest.mark.fault("E4")
async def test_a_worker_whose_python_is_held_by_a_c_call_is_stuck_and_never_dead() -> None:
    """Not even its signs of life come through, for as long as it takes. Nothing is ended for it,
    the hub answers meanwhile, and the session goes on."""
    with directories() as root:
        lock = holdable(root)
        with Daemon("scripted:rate=100", stuck_s=PATIENCE_S) as daemon:
            async with watching(daemon.paths, run_to=None, max_steps=100_000) as watch:
                await watch.until(lambda c: len(c) >= 80)  # it has said that it decodes
                worker = children(daemon.pid)["worker"]
                with held(lock):
                    os.kill(worker.pid, signal.SIGUSR2)
                    await watch.until(lambda _: why(watch) == "silent")
                    assert "no sign of life" in watch.client.state.engine.message
                    async with DaemonClient(daemon.paths) as late:
                        assert late.state.engine.word == "stuck"
                    came = len(watch.columns)
                columns = await watch.until(lambda c: len(c) >= came + 3 and why(watch) == "")
                assert columns.lost is None
                assert {"busy", "stuck"} <= set(watch.words)
                assert "dead" not in watch.words
                assert watch.client.state.engine.engine == 1
                assert children(daemon.pid)["worker"].pid == worker.pid
                assert [seq for seq, _ in watch.events] == list(range(columns.next))


@pytest.mark.fault("E4")
async def test_a_worker_that_is_stopped_while_it_loads_is_stuck_too() -> None:
    with directories():
        daemon = Daemon("scripted:load_ms=5000", stuck_s=PATIENCE_S).start(wait="hub")
        try:
            async with watching(daemon.paths, run_to=1) as watch:
                await watch.until(word_is(watch, "loading"))
                worker = children(daemon.pid)["worker"]
                worker.suspend()
                await watch.until(lambda _: why(watch) == "halted")
                worker.resume()
                await watch.standing(1)
        finally:
            daemon.stop()
