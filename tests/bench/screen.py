"""The screen in a real terminal: first paint, event to pixels, key to paused, a flood."""

import asyncio
import os
import re
import resource
import time
from pathlib import Path

from engine_daemon.client import DaemonClient
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.values import PromptSpec
from engine_daemon.recording.reader import Recording
from tests.bench.table import Row, median, percentile
from tests.daemons import Daemon, running_daemon, watching
from tests.end_to_end.command import COMMAND
from tests.end_to_end.terminal import Terminal
from tui.app import InspectApp

STEP_ON_SCREEN = re.compile(r"NEXT TOKEN · step (\d+)")
STEPS = 150
FLOOD_S = 6.0


def run() -> list[Row]:
    """All four, with the scripted engine."""
    rows = []
    with running_daemon("scripted:rate=30") as daemon:
        session = asyncio.run(_open(daemon, run_to=20))
        rows.append(_first_paint(daemon, session))
        rows.append(_event_to_pixels(daemon, session))
        rows.append(_space_to_paused(daemon, session))
    with running_daemon("scripted:rate=5000") as daemon:
        rows += asyncio.run(_flood(daemon))
    return rows


async def _open(daemon: Daemon, run_to: int | None) -> str:
    async with watching(daemon.paths, run_to=run_to) as watch:
        if run_to is not None:
            await watch.standing(run_to)
        return watch.session


def _terminal(session: str) -> Terminal:
    words = [str(COMMAND), "attach", "--session", session]
    return Terminal(words, {**os.environ, "TERM": "xterm-256color"}, Path("/tmp"))


def _first_paint(daemon: Daemon, session: str) -> Row:
    times = []
    for _ in range(5):
        begin = time.monotonic()
        with _terminal(session) as terminal:
            terminal.until(lambda picture: STEP_ON_SCREEN.search(picture) is not None)
            times.append(time.monotonic() - begin)
            terminal.press("q")
            terminal.finish()
    seconds = median(times)
    return Row(
        "attach to a running daemon → first paint", f"{seconds:.2f} s", "≤ 0.8 s", seconds <= 0.8
    )


def _events(daemon: Daemon, session: str) -> list[ev.Event]:
    recording = Recording.open(daemon.paths.recordings / f"{session}.lir")
    events = [unpack_event(packed) for _, packed in recording.events()]
    return [event for event in events if isinstance(event, ev.Event)]


def _event_to_pixels(daemon: Daemon, session: str) -> Row:
    """From the worker's clock in `Stepped` to the terminal's picture of that step: a session that
    runs shows the step that was picked last."""
    seen: dict[int, float] = {}

    def look(picture: str) -> bool:
        found = STEP_ON_SCREEN.search(picture)
        if found is not None:
            seen.setdefault(int(found[1]), time.monotonic())
        return len(seen) > STEPS

    with _terminal(session) as terminal:
        terminal.until(lambda picture: STEP_ON_SCREEN.search(picture) is not None)
        terminal.press("space")
        terminal.until(look)
        terminal.press("space")
        terminal.until("PAUSED")
        terminal.press("q")
        terminal.finish()
    born = {e.step: e.t_ns / 1e9 for e in _events(daemon, session) if isinstance(e, ev.Stepped)}
    first = min(seen)
    late = [(seen[step] - born[step]) * 1000 for step in seen if step > first and step in born]
    p50, p99 = median(late), percentile(late, 0.99)
    figure = f"p50 {p50:.0f} ms, p99 {p99:.0f} ms"
    return Row("event at the worker → pixels, 120×40", figure, "p50 ≤ 40 ms", p50 <= 40)


def _space_to_paused(daemon: Daemon, session: str) -> Row:
    """From the key to the worker's `Stopped`; a step of this engine takes 67 ms."""
    pressed = []
    with _terminal(session) as terminal:
        terminal.until("PAUSED")
        for _ in range(8):
            terminal.press("space")
            terminal.until("LIVE")
            pressed.append(time.monotonic())
            terminal.press("space")
            terminal.until("PAUSED")
        terminal.press("q")
        terminal.finish()
    stops = [
        e.t_ns / 1e9
        for e in _events(daemon, session)
        if isinstance(e, ev.Stopped) and e.reason == "pause"
    ]
    late = [
        (min(stop for stop in stops if stop > key) - key) * 1000
        for key in pressed
        if any(stop > key for stop in stops)
    ]
    worst, step_ms = max(late), 2 / 30 * 1000
    goal = step_ms + 50
    figure = f"worst {worst:.0f} ms at {step_ms:.0f} ms a step"
    return Row("space → paused", figure, f"≤ one step + 50 ms ({goal:.0f})", worst <= goal)


async def _flood(daemon: Daemon) -> list[Row]:
    """The app with a real client and no terminal, while 5,000 events a second arrive."""
    async with DaemonClient(daemon.paths) as opener:
        opening = cmd.Open(prompt=PromptSpec(text=b"on and on"), run_to=None, max_steps=10**6)
        reply = await opener.command(opening)
    app = InspectApp(lambda: DaemonClient(daemon.paths, client="bench"), session=reply.session)
    waits: list[float] = []
    async with app.run_test(size=(120, 40)) as pilot:
        while not len(app.view.columns):
            await pilot.pause(0.05)
        steps, cpu, begin = len(app.view.columns), _cpu_s(), time.monotonic()
        while time.monotonic() - begin < FLOOD_S:
            asked = time.perf_counter()
            app.call_next(lambda asked=asked: waits.append(time.perf_counter() - asked))
            await asyncio.sleep(0.02)
        wall = time.monotonic() - begin
        used, rate = (_cpu_s() - cpu) / wall, 2 * (len(app.view.columns) - steps) / wall
    share, p99 = used * 100, percentile(waits, 0.99) * 1000
    return [
        Row(
            f"feed at {rate:.0f} events/s: CPU of the viewer",
            f"{share:.0f} %",
            "≤ 25 %",
            share <= 25,
        ),
        Row("feed at that rate: key to callback, p99", f"{p99:.1f} ms", "≤ 10 ms", p99 <= 10),
    ]


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
