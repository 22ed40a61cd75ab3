"""Pictures of the screen: reviewed by eye when they change; behaviour is tested elsewhere."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from engine_daemon.errors import InspectError
from engine_daemon.protocol.state import State
from tests.tui.pilot import until
from tests.tui.recordings import replay_app, write
from tests.tui.source import FakeSource
from tests.tui.story import FIRST, Story, paused, state
from tui.app import InspectApp
from tui.panes import PANES
from tui.panes.base import Pane
from tui.theming import read_themes

Compare = Callable[..., bool]
WORDS = b"the scheduler of a node is told by pods that it waits for some other one".split()


def long() -> Story:
    """A run with everything in it: newlines, an emoji in two tokens, specials, a forced token."""
    story = Story().predict().stop().command("run_to", None)
    for k in range(60):
        word = b" " + WORDS[k * 5 % len(WORDS)]
        story.tokens((word, (0.05, 0.95, 0.4, 0.8, 0.15, 0.99)[k % 6]))
    story.tokens((b".\n\n", 0.7), (b"**", 0.3), (b" \xf0\x9f", 0.4), (b"\x98\x80", 0.98))
    story.predict(after_pause=True).pick(4142, b" default", 0.02, how="forced", rank=5, total=19.0)
    story.predict(
        [(2, b"<|im_end|>", 0.5), *FIRST[:11]], specials=[2], sampled=True, chosen=3
    ).pick(31_000, b" rare", 0.0004, how="sampled", rank=412)
    return story


def app_of(story: Story, *, first: State | None = None, theme: str | None = None) -> InspectApp:
    source = FakeSource(story, first)
    return InspectApp(lambda: source, theme=theme)


def then(*keys: str) -> Callable[[Pilot[InspectError]], Any]:
    """Wait for the story, press keys, let the slowest pane draw."""

    async def run(pilot: Pilot[InspectError]) -> None:
        app = pilot.app
        assert isinstance(app, InspectApp)
        source = app._source()
        assert isinstance(source, FakeSource)
        told = source.state.sessions
        await until(pilot, lambda: app.main.feed is not None)
        await until(pilot, lambda: not told or app.view.columns.next == len(source.story.log))
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        app.main.paint()
        await until(pilot, lambda: not any(pane._late for pane in app.main.query(Pane)))
        await pilot.pause()

    return run


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (20, 5)], ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("name", ["paused", "running"])
def test_main_screen(snap_compare: Compare, size: tuple[int, int], name: str) -> None:
    story = paused() if name == "paused" else long()
    assert snap_compare(app_of(story), terminal_size=size, run_before=then())


@pytest.mark.parametrize("pane", [name for name, pane in PANES.items() if pane.FOCUSABLE])
def test_each_pane_alone(snap_compare: Compare, pane: str) -> None:
    places = [name for name, one in PANES.items() if one.FOCUSABLE].index(pane)
    keys = ["tab"] * places + ["z"]
    assert snap_compare(app_of(long()), terminal_size=(80, 24), run_before=then(*keys))


@pytest.mark.parametrize("theme", [*read_themes(), "ansi-dark"])
def test_each_theme(snap_compare: Compare, theme: str) -> None:
    app = app_of(long(), theme=theme)
    assert snap_compare(app, terminal_size=(120, 40), run_before=then("tab"))


def test_without_colour(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(app_of(long()), terminal_size=(120, 40), run_before=then("tab"))


@pytest.mark.parametrize("key", ["ctrl+n", "p", "t", "question_mark", "colon"])
def test_each_dialog(snap_compare: Compare, key: str) -> None:
    app = app_of(paused())
    assert snap_compare(app, terminal_size=(100, 32), run_before=still(key))


def still(*keys: str) -> Callable[[Pilot[InspectError]], Any]:
    """As `then`, with cursors that do not blink."""

    async def run(pilot: Pilot[InspectError]) -> None:
        await then(*keys)(pilot)
        for widget in pilot.app.screen.query("Input, TextArea"):
            widget.cursor_blink = False  # type: ignore[attr-defined]  # both have it
        await pilot.pause()

    return run


@pytest.mark.parametrize("name", ["loading", "dead", "stuck", "empty"])
def test_states(snap_compare: Compare, name: str) -> None:
    known = state()
    match name:
        case "loading":
            first = state(word="loading", stage="load", done=134_000_000, total=269_000_000)
        case "dead":
            first = state(word="dead", message="no such model: x", hint="llm-inspect models list")
        case "stuck":
            message = "rank 1 is halted (SIGSTOP), for 12 s now"
            first = state(word="stuck", message=message)
        case _:
            first = State(engine=known.engine, sessions=[], viewers=known.viewers)
    app = app_of(paused(), first=first)
    assert snap_compare(app, terminal_size=(80, 24), run_before=then())


def test_a_screen_that_is_behind(snap_compare: Compare) -> None:
    app = app_of(long())

    async def run(pilot: Pilot[InspectError]) -> None:
        await then()(pilot)
        app.view.behind.events, app.view.behind.shown = 824, True
        app.main.paint()
        await until(pilot, lambda: not any(pane._late for pane in app.main.query(Pane)))
        await pilot.pause()

    assert snap_compare(app, terminal_size=(120, 40), run_before=run)


def test_a_look_into_the_engine(snap_compare: Compare) -> None:
    app = app_of(paused(), first=state(word="stuck", message="no sign of life of rank 1 for 31 s"))
    assert snap_compare(app, terminal_size=(100, 32), run_before=still("E"))


@pytest.mark.parametrize("size", [(120, 40), (80, 24)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_a_replay(snap_compare: Compare, tmp_path: Path, size: tuple[int, int]) -> None:
    path = tmp_path / "kubernetes.lir"
    write(path, long().log)
    os.utime(path, (1e9, 1e9))
    app = replay_app(path)

    async def run(pilot: Pilot[InspectError]) -> None:
        await until(pilot, lambda: app.view.session is not None)
        await pilot.press("4", "0", "G")
        await pilot.pause()
        app.main.paint()
        await until(pilot, lambda: not any(pane._late for pane in app.main.query(Pane)))
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=run)
