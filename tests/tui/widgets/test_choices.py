"""Lists to choose from: on a terminal that has no cell left for them, and answered twice."""

import pytest
from textual.command import CommandPalette
from textual.widgets import OptionList

from tests.tui.pilot import Screen, rows, screen, until
from tui.app import InspectApp

PAGES = ("pagedown", "pageup", "up", "down")
NO_ROOM = [(1, 1), (4, 2), (6, 3), (8, 4), (4, 30), (200, 3)]


@pytest.mark.parametrize("key", ["t", "B"])
@pytest.mark.parametrize("size", NO_ROOM)
async def test_a_page_of_a_list_without_room_is_no_page(key: str, size: tuple[int, int]) -> None:
    async with screen() as (pilot, app, _):
        await pilot.press(key)
        await until(pilot, lambda: bool(app.screen.query(OptionList)))
        await pilot.resize_terminal(*size)
        await pilot.press(*PAGES, "home", "end")
        await _is_there_again(pilot, app)


@pytest.mark.parametrize("size", NO_ROOM)
async def test_a_page_of_a_palette_without_room_is_no_page(size: tuple[int, int]) -> None:
    async with screen() as (pilot, app, _):
        await _palette(pilot, app)
        await pilot.resize_terminal(*size)
        await pilot.press(*PAGES)
        await _is_there_again(pilot, app)


async def test_a_palette_that_is_left_twice_takes_no_other_screen_away() -> None:
    async with screen() as (pilot, app, _):
        await _palette(pilot, app)
        assert isinstance(app.screen, CommandPalette)
        palette = app.screen
        for _ in range(2):  # both keys came before the first one was seen
            palette._action_escape()
        await until(pilot, lambda: app.screen is app.main)


async def test_a_command_that_is_chosen_twice_is_carried_out_once() -> None:
    async with screen() as (pilot, app, _):
        await _palette(pilot, app)
        await pilot.press(*"time so far")
        choices = app.screen.query_one(OptionList)
        await until(
            pilot,
            lambda: choices.option_count == 1 and "mode" in str(choices.options[0].prompt),
        )
        choices.highlighted = 0
        for _ in range(2):
            choices.action_select()
        await until(pilot, lambda: app.screen is app.main)
        await until(pilot, lambda: "ms so far" in rows(app, "cost")[0])
        for _ in range(5):
            await pilot.pause()
        assert "ms so far" in rows(app, "cost")[0], "twice would be another"


async def _palette(pilot: Screen, app: InspectApp) -> None:
    await pilot.press("ctrl+p")
    await until(pilot, lambda: isinstance(app.screen, CommandPalette))
    await until(pilot, lambda: app.screen.query_one(OptionList).option_count > 0)


async def _is_there_again(pilot: Screen, app: InspectApp) -> None:
    """With its keys, on a terminal that has room again."""
    await pilot.resize_terminal(100, 30)
    await pilot.press("pagedown", "escape")
    await until(pilot, lambda: app.screen is app.main)
