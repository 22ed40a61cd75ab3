"""Drives the application on a hand-made session, and waits for what it expects."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from textual.pilot import Pilot
from textual.strip import Strip

from engine_daemon.errors import InspectError
from tests.daemons import PATIENCE_S
from tests.tui.source import FakeSource
from tests.tui.story import Story, paused
from tui.app import InspectApp
from tui.panes.base import Pane
from tui.screens.keys import KeysBar

Screen = Pilot[InspectError]


@asynccontextmanager
async def screen(
    story: Story | None = None,
    *,
    source: FakeSource | None = None,
    size: tuple[int, int] = (120, 40),
    observe: bool = False,
    theme: str | None = None,
    ready: bool = True,
) -> AsyncIterator[tuple[Screen, InspectApp, FakeSource]]:
    """The app on a fake source, with the whole story folded in."""
    served = source or FakeSource(story or paused())
    app = InspectApp(lambda: served, observe=observe, theme=theme)
    async with app.run_test(size=size, notifications=True) as pilot:
        if ready:
            await until(pilot, lambda: app.view.columns.next == len(served.story.log))
        await pilot.pause()
        yield pilot, app, served


async def until(pilot: Screen, true: Callable[[], bool]) -> None:
    """Let the app work until this is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "it did not come to be"
        await pilot.pause(0.01)
    await pilot.pause()


def rows(app: InspectApp, pane_id: str) -> list[str]:
    """What a pane draws, as text."""
    pane = app.main.query_one(f"#{pane_id}", Pane)
    pane.refresh_from()
    strips: list[Strip] = [pane.render_line(y) for y in range(pane.size.height)]
    return [strip.text for strip in strips]


def keys(app: InspectApp) -> str:
    """The last line, with single spaces."""
    return " ".join(app.main.query_one(KeysBar).render_line(0).text.split())


def said(app: InspectApp) -> str:
    """What the last line says instead of the keys."""
    assert not app._notifications
    return app.main.query_one(KeysBar).told
