"""A viewer that cannot keep up says so on its own screen, and can jump to the head."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

import pytest

from engine_daemon.client import DaemonClient, Update
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.values import PromptSpec
from tests.daemons import PATIENCE_S, running_daemon
from tests.tui.pilot import Screen, rows
from tui.app import InspectApp
from tui.behind import BEHIND_S, Behind


class SlowClient(DaemonClient):
    """Takes one batch a second until it is let go on; what it has not taken yet lies in a row."""

    gate: asyncio.Event
    row: deque[Update]

    def follow(self, session: str, start: int = 0, *, snapshot: bool = False) -> None:
        self.row.clear()  # as the client's own queue: what was followed before is void
        super().follow(session, start, snapshot=snapshot)

    async def updates(self) -> AsyncIterator[list[Update]]:
        async for updates in super().updates():
            self.row.extend(updates)
            while self.row:
                update = self.row.popleft()
                if isinstance(update, cmd.Batch) and not self.gate.is_set():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self.gate.wait(), 1.0)
                yield [update]


async def until(pilot: Screen, app: InspectApp, wanted: str, *, there: bool = True) -> str:
    async with asyncio.timeout(PATIENCE_S):
        while (wanted in rows(app, "status")[0]) is not there:
            await pilot.pause(0.02)
    return rows(app, "status")[0]


@pytest.mark.fault("L5")
@pytest.mark.parametrize("jumps", [False, True])
async def test_a_viewer_that_reads_a_batch_a_second_says_so_and_gets_there(jumps: bool) -> None:
    opening = cmd.Open(
        prompt=PromptSpec(text=b"Pods are"), run_to=None, max_steps=5000, candidates=5
    )
    with running_daemon("scripted:rate=2000,context=8192") as daemon:
        client = SlowClient(daemon.paths, client="tui")
        client.gate, client.row = asyncio.Event(), deque()
        app = InspectApp(lambda: client, open_command=opening)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, app, "steps behind · G jumps to the head")
            async with asyncio.timeout(PATIENCE_S):
                while not any(s.place.step >= 5000 for s in client.state.sessions):
                    await pilot.pause(0.05)
            assert len(app.view.columns) < 5000
            if jumps:
                await pilot.press("G")
                async with asyncio.timeout(PATIENCE_S):
                    while len(app.view.columns) < 5000:
                        await pilot.pause(0.02)
                assert not client.gate.is_set()  # a batch a second would have taken far longer
            client.gate.set()
            await until(pilot, app, "steps behind", there=False)
            async with asyncio.timeout(PATIENCE_S):
                while app.view.columns.status != "ended":
                    await pilot.pause(0.02)
            (info,) = client.state.sessions
            assert app.view.columns.next == info.head
            assert (len(app.view.columns), app.view.columns.complete) == (5000, True)
            assert app.view.columns.strays == 0


def test_what_is_not_a_second_old_is_not_behind() -> None:
    behind = Behind()
    for tick in range(100):  # a flood, shown a frame later
        now = tick / 30
        behind.heard(tick * 1000, now)
        assert not behind.look(max(0, tick - 1) * 1000, now)
    behind.heard(200_000, 4.0)
    assert not behind.look(99_000, 4.0 + BEHIND_S / 2)
    assert behind.look(99_000, 5.5)
    assert behind.words == f"{(200_000 - 99_000) // 2} steps behind"
    assert behind.look(150_000, 5.6)
    assert not behind.look(200_000, 5.7)


def test_a_slow_link_is_seen_by_the_age_of_what_comes() -> None:
    """All that the link tells of the head is as late as the events."""
    behind = Behind()
    for tick in range(40):
        now = 1000 + tick / 10
        delay = min(tick / 10, 3.0)
        behind.heard(tick * 2, now)
        behind.took(now - delay - 777.0, now)  # another machine's clock
        shown = behind.look(tick * 2, now)
        assert shown is (delay > BEHIND_S)
    assert behind.words == "3 s behind"
    assert not behind.look(78, 1010.0)  # nothing more comes: what there is, is shown
    behind.took(5.0, 1011.0)  # made since the other machine was started anew
    assert not behind.look(80, 1011.0)
