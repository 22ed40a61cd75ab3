"""Sizes of the terminal that follow each other closely."""

from collections.abc import Callable

import pytest
from textual import events
from textual.command import CommandPalette
from textual.geometry import Size
from textual.screen import Screen

from tests.tui.pilot import screen, until
from tui.app import InspectApp
from tui.screens.help import HelpScreen


class Counted:
    """How often a screen was laid out."""

    def __init__(self, shown: Screen[object]) -> None:
        self.times = 0
        lay_out = shown._refresh_layout

        def counting(size: Size | None = None, scroll: bool = False) -> None:
            self.times += 1
            lay_out(size, scroll)

        shown._refresh_layout = counting  # type: ignore[method-assign]


def _main(app: InspectApp) -> bool:
    return app.screen is app.main


def _help(app: InspectApp) -> bool:
    return isinstance(app.screen, HelpScreen)


def _palette(app: InspectApp) -> bool:
    return isinstance(app.screen, CommandPalette)


@pytest.mark.parametrize(
    ("key", "there"), [("escape", _main), ("ctrl+p", _palette), ("question_mark", _help)]
)
async def test_two_sizes_at_once_are_laid_out_and_over(
    key: str, there: Callable[[InspectApp], bool]
) -> None:
    """Something between the two, so that Textual does not make one of them."""
    async with screen(size=(100, 30)) as (pilot, app, _):
        await pilot.press(key)
        await until(pilot, lambda: there(app))
        counted = Counted(app.screen)
        for columns, lines in ((90, 28), (100, 30), (80, 24), (100, 30)):
            size = Size(columns, lines)
            app.screen.post_message(events.Resize(size, size))
            app.screen.post_message(events.Show())
        for _ in range(20):
            await pilot.pause(0.01)
        before = counted.times
        for _ in range(20):
            await pilot.pause(0.01)
        assert counted.times == before
        assert app.screen.size == Size(100, 30)
        await pilot.press("escape")
        await pilot.resize_terminal(70, 20)
        await until(pilot, lambda: app.screen.size == Size(70, 20))
