"""The last line: what is offered, and that it is what acts."""

import pytest

from engine_daemon.protocol.commands import (
    At,
    Force,
    RunTo,
)
from tests.tui.pilot import keys, rows, screen, until
from tests.tui.story import SESSION
from tui.screens.keys import KeysBar
from tui.text import SafeText


async def test_enter_goes_to_the_candidates_first_and_forces_there() -> None:
    async with screen() as (pilot, app, source):
        assert "enter choose" in keys(app)
        await pilot.press("enter")
        assert app.focused is app.main.query_one("#next-token")
        assert source.sent == []
        assert "enter force" in keys(app)
        assert "choose" not in keys(app)
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: app.view.columns.place.step == 4)
        assert source.sent == [(Force(id=8), SESSION, At(branch=0, step=3))]
        assert "forced" in "\n".join(rows(app, "tokens"))


async def test_enter_is_offered_only_where_it_acts() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("S")
        assert "enter choose" in keys(app)
        await pilot.press("tab")
        assert "enter force" in keys(app)
        await pilot.press("G", "space")
        await until(pilot, lambda: app.view.running)
        assert "enter" not in keys(app)
        assert [do for do, _, _ in source.sent] == [RunTo(step=None)]


@pytest.mark.parametrize("width", [20, 30, 45, 60, 80, 100, 120])
async def test_help_is_offered_in_any_width(width: int) -> None:
    async with screen(size=(width, 24)) as (pilot, app, _source):
        assert " ? " in app.main.query_one(KeysBar).render_line(0).text
        await pilot.press("1", "2")
        assert " ? " in app.main.query_one(KeysBar).render_line(0).text


async def test_zoom_keeps_the_lines_around_it_and_says_how_to_leave() -> None:
    async with screen() as (pilot, app, _source):
        await pilot.press("z")
        await pilot.pause()
        assert keys(app).startswith("z all panes")
        for name in ("#status", "#keys"):
            assert app.main.query_one(name).region.height == 1
        assert app.main.query_one("#status").region.y == 0
        assert app.main.query_one("#keys").region.y == 39
        assert app.main.query_one("#sequence").region.height == 38
        await pilot.press("z")
        assert not keys(app).startswith("z")


@pytest.mark.parametrize("key", ["B", "p", "w", "b", "m", "i", "ctrl+n", "v", "?", "t", "E", ":"])
async def test_below_a_dialog_no_keys_are_offered_and_what_is_said_is_shown(key: str) -> None:
    async with screen() as (pilot, app, source):
        assert "space pause/run" in keys(app)
        await pilot.press(key)
        await until(pilot, lambda: app.screen is not app.main)
        await until(pilot, lambda: keys(app) == "")
        source.story.command("run_to", 4).pick(43, b" tok", 0.4).predict().stop()
        source.flush()
        await until(pilot, lambda: app.view.columns.place.step == 4)
        assert keys(app) == ""
        app.main.say("somebody took it")
        assert keys(app) == "somebody took it"
        app.main.tell(SafeText(""))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        await until(pilot, lambda: "space pause/run" in keys(app))
