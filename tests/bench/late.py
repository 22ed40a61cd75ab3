"""Joining a session of 100,000 steps: how soon there is something to see, and everything."""

import asyncio
import time
from collections.abc import Callable

from textual.pilot import Pilot

from engine_daemon.client import DaemonClient
from engine_daemon.errors import InspectError
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.values import PromptSpec
from engine_daemon.recording.columns import Columns
from tests.bench.table import Row, median
from tests.daemons import Daemon, running_daemon
from tui.app import InspectApp
from tui.panes.base import Pane

STEPS = 100_000
JOINERS = 5


def run() -> list[Row]:
    """A scripted session of `STEPS` steps, joined by screens and by bare clients."""
    with running_daemon(f"scripted:rate=0,context={STEPS + 100}") as daemon:
        return asyncio.run(_measure(daemon))


async def _measure(daemon: Daemon) -> list[Row]:
    session = await _made(daemon)
    paints, wholes = [], []
    for _ in range(JOINERS):
        paint, whole = await _screen(daemon, session)
        paints.append(paint)
        wholes.append(whole)
    bare = [await _bare(daemon, session, snapshot=True) for _ in range(JOINERS)]
    log = await _bare(daemon, session, snapshot=False)
    return [
        _row("late joiner at 100,000 steps: first paint", median(paints), 0.5),
        _row("late joiner at 100,000 steps: complete", median(wholes), 3.0),
        Row("the same without a screen", f"{median(bare):.2f} s"),
        Row("the same, event by event", f"{log:.2f} s"),
    ]


async def _made(daemon: Daemon) -> str:
    """A session that stands at its last step."""
    async with DaemonClient(daemon.paths, client="bench") as client:
        opening = cmd.Open(prompt=PromptSpec(text=b"Hello"), run_to=STEPS, candidates=20)
        reply = await client.command(opening)
        assert reply.session is not None
        async for _ in client.updates():
            info = next(s for s in client.state.sessions if s.session == reply.session)
            if info.status == "paused" and info.place.step == STEPS:
                return reply.session
    raise AssertionError("the daemon went away")


async def _screen(daemon: Daemon, session: str) -> tuple[float, float]:
    """Seconds from joining, on a screen that stands, to the first picture of the session, and to
    the last of its steps."""
    app = InspectApp(lambda: DaemonClient(daemon.paths, client="tui"), session=session)
    async with app.run_test(size=(120, 40)) as pilot:
        await _until(pilot, lambda: app.main.feed is not None)
        began = time.perf_counter()
        await _until(pilot, lambda: len(app.view.columns) > 0 and _painted(app) > 0)
        paint = time.perf_counter() - began
        await _until(pilot, lambda: len(app.view.columns) == STEPS)
        return paint, time.perf_counter() - began


def _painted(app: InspectApp) -> int:
    """Characters of the session on screen."""
    pane = app.main.query_one("#tokens", Pane)
    return sum(len(pane.render_line(y).text.strip()) for y in range(pane.size.height))


async def _until(pilot: Pilot[InspectError], true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.002)
    await pilot.pause()


async def _bare(daemon: Daemon, session: str, *, snapshot: bool) -> float:
    began = time.perf_counter()
    columns = Columns()
    async with DaemonClient(daemon.paths, client="bench") as client:
        client.follow(session, snapshot=snapshot)
        async for updates in client.updates():
            for update in updates:
                if isinstance(update, cmd.Snapshot):
                    columns = Columns.of(update.columns)
                elif isinstance(update, cmd.Batch):
                    columns.extend(update.ev)
            if len(columns) == STEPS:
                return time.perf_counter() - began
    raise AssertionError("the daemon went away")


def _row(measure: str, seconds: float, goal: float) -> Row:
    return Row(measure, f"{seconds:.2f} s", f"≤ {goal:g} s", seconds <= goal)
