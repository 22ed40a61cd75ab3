"""The palette: what is found by what is typed, and what enter then does."""

import pytest
from textual.command import CommandPalette
from textual.widgets import OptionList

from tests.tui.pilot import keys, rows, screen, until
from tui.commands import closeness


@pytest.mark.parametrize(
    ("typed", "name", "help_line", "found"),
    [
        (
            "time so far enter",
            "resample  (r)",
            "the same token: p sets a sampler that draws",
            False,
        ),
        ("zm", "zoom  (z)", "Give the focused pane the whole screen", False),
        ("", "zoom  (z)", "Give the focused pane the whole screen", False),
        ("ZOO", "zoom  (z)", "Give the focused pane the whole screen", True),
        ("screen zoom", "zoom  (z)", "Give the focused pane the whole screen", True),
        ("time so far", "mode  (M)", "Plot a step's time, time so far, or tokens a second", True),
    ],
)
def test_every_word_that_is_typed_is_there(
    typed: str, name: str, help_line: str, found: bool
) -> None:
    assert (closeness(typed, name, help_line) > 0) is found


def test_a_name_that_begins_with_it_comes_first() -> None:
    assert (
        closeness("step", "step  (s)", "")
        > closeness("step", "no step", "")
        > closeness("step", "back  (S)", "One step back")
        > 0
    )


async def test_what_nothing_is_called_runs_nothing() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("colon")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await pilot.press(*"time so far enter")
        await pilot.pause(0.5)
        await pilot.press("enter")
        await pilot.pause(0.5)
        assert source.sent == []


async def test_keys_of_one_pane_work_wherever_the_focus_is() -> None:
    async with screen() as (pilot, app, _source):
        assert app.focused is app.main.query_one("#sequence")
        assert "ms a step" in rows(app, "cost")[0]
        await pilot.press("M")
        await until(pilot, lambda: "ms so far" in rows(app, "cost")[0])
        await pilot.press("u")
        await until(pilot, lambda: "log p" in rows(app, "next-token")[1])
        assert app.focused is app.main.query_one("#sequence")


async def test_the_palette_has_the_keys_of_one_pane() -> None:
    async with screen() as (pilot, app, _source):
        await pilot.press("colon")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await pilot.press(*"time so far")
        choices = app.screen.query_one(OptionList)
        await until(
            pilot,
            lambda: choices.option_count == 1 and "mode" in str(choices.options[0].prompt),
        )
        await pilot.press("enter")
        await until(pilot, lambda: "ms so far" in rows(app, "cost")[0])


@pytest.mark.parametrize("size", [(80, 24), (50, 14)])
async def test_of_a_pane_that_is_not_seen_it_is_said_where_it_is(size: tuple[int, int]) -> None:
    async with screen(size=size) as (pilot, app, _source):
        await pilot.press("M")
        await until(pilot, lambda: keys(app).startswith("M belongs to COST PER STEP: tab"))


async def test_of_panes_behind_one_that_has_all_room_the_way_back_is_said() -> None:
    async with screen() as (pilot, app, _source):
        await pilot.press("z")
        await until(pilot, lambda: app.main.maximized is not None)
        await pilot.press("u")
        await until(pilot, lambda: "u belongs to NEXT TOKEN: z shows all panes" in keys(app))
