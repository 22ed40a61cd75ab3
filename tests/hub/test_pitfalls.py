"""What message queues are known to do to programs like this one, and does not happen here."""

import asyncio
import os
import random
import time

import pytest

from engine_daemon import client as viewer
from engine_daemon import following
from engine_daemon.client import DaemonClient
from engine_daemon.errors import InspectError
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.reads import AskEvents
from tests.daemons import PATIENCE_S, Daemon, Watch, attached, running_daemon, watching
from tests.hub.test_wire import RawViewer

SLOW = "scripted:rate=200"
JOINERS = 100
ORDERS = 100
FAST = "scripted:rate=1000,context=2000000"
NEVER_S = 1e6


@pytest.mark.pitfall("P4")
async def test_nobody_who_joins_a_run_misses_its_beginning() -> None:
    """A hundred attach while it runs; each gets every event from the first one on."""
    with running_daemon(SLOW) as daemon:
        async with watching(daemon.paths, run_to=None, max_steps=100_000) as watch:
            await watch.until(lambda c: len(c) >= 5)
            seen = await asyncio.gather(*(_joined(daemon, watch.session) for _ in range(JOINERS)))
            await watch.client.command(cmd.Pause(), watch.session)
            assert all(seqs == list(range(len(seqs))) for seqs in seen)
            assert all(len(seqs) > 10 for seqs in seen)


async def _joined(daemon: Daemon, session: str) -> list[int]:
    async with attached(daemon.paths, session) as watch:
        caught_up = (await watch.until(lambda c: len(c) >= 5)).next
        await watch.until(lambda c: c.next > caught_up)
        return [seq for seq, _ in watch.events]


@pytest.mark.pitfall("P6")
async def test_the_last_command_of_who_leaves_at_once_is_not_lost() -> None:
    with running_daemon(SLOW) as daemon:
        async with watching(daemon.paths) as watch:
            await watch.standing(0)
            for number in range(ORDERS):
                async with DaemonClient(daemon.paths) as client:
                    note = cmd.Note(text=str(number), step=0, branch=0)
                    await client.command(note, watch.session)
            columns = await watch.until(lambda c: len(c.notes) == ORDERS)
            assert [note.text for note in columns.notes] == [str(n) for n in range(ORDERS)]


@pytest.mark.pitfall("P21")
def test_who_takes_the_name_of_another_gets_none_of_its_answers() -> None:
    """Two connections with one routing id: the second is not let in, and takes nothing over."""
    with running_daemon() as daemon:
        first = RawViewer(daemon, name=b"the same")
        first.send(cmd.Hello(min=1, max=1, caps=[], client="raw", who="me"))
        welcome = first.until("welcome")
        assert isinstance(welcome, cmd.Welcome)
        second = RawViewer(daemon, name=b"the same")
        second.send(cmd.Hello(min=1, max=1, caps=[], client="raw", who="thief"))
        for _ in range(20):
            first.send(cmd.Ping())
            assert first.until("pong")
        assert second.quiet() == []
        first.close()
        second.close()


@pytest.mark.pitfall("P15")
async def test_a_forked_child_is_told_that_its_link_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the process is another one than the link's; a fork of the tests would copy them all."""
    with running_daemon() as daemon:
        async with DaemonClient(daemon.paths) as client:
            with monkeypatch.context() as other:
                other.setattr(os, "getpid", lambda: 1)
                with pytest.raises(RuntimeError, match="does not outlive a fork"):
                    await client.command(cmd.Pause())
            with pytest.raises(InspectError, match="session"):
                await client.command(cmd.Pause())


@pytest.mark.pitfall("P16")
@pytest.mark.parametrize(
    "seconds", [3, pytest.param(600, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
async def test_a_viewer_that_pauses_at_random_is_woken_for_everything(
    seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ZeroMQ descriptor tells edges only, and to write may eat one: what lies there then is
    looked for again. Pings and acknowledgements would come to the rescue: there are none."""
    monkeypatch.setattr(viewer, "PING_S", NEVER_S)
    monkeypatch.setattr(following, "ACK_S", NEVER_S)
    rng = random.Random(seconds)
    with running_daemon(FAST) as daemon:
        async with watching(daemon.paths, run_to=None) as watch:
            stop = time.monotonic() + seconds
            async with asyncio.TaskGroup() as tasks:
                asking = [tasks.create_task(_ask_on(watch, rng, stop)) for _ in range(3)]
                while time.monotonic() < stop:
                    known = watch.columns.next
                    await watch.until(lambda c, n=known: c.next > n)  # type: ignore[misc]
                    _stand_still(rng)
                    await asyncio.sleep(rng.choice([0, 0, rng.uniform(0, 0.05)]))
            await watch.client.command(cmd.Pause(), watch.session)
            columns = await watch.until(lambda c: c.status == "paused")
            assert [seq for seq, _ in watch.events] == list(range(columns.next))
            assert min(task.result() for task in asking) > 0


def _stand_still(rng: random.Random) -> None:
    """Now and then the whole loop, as when a screen is drawn."""
    if rng.random() < 0.3:
        time.sleep(rng.uniform(0, 0.03))


async def _ask_on(watch: Watch, rng: random.Random, stop: float) -> int:
    """Question after question; how many were answered."""
    answered = 0
    while time.monotonic() < stop:
        async with asyncio.timeout(PATIENCE_S):
            await watch.client.ask(AskEvents(seqs=[0]), watch.session)
        answered += 1
        await asyncio.sleep(rng.uniform(0, 0.06))
    return answered
