"""Typing into the new prompt, which begins with the one on screen."""

import pytest
from textual.widgets import TextArea

from tests.tui.pilot import screen, until
from tui.screens.prompt import PromptScreen


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("H i", "Hi"),
        ("right H i", "Kubernetes pods are scheduled by theHi"),
        ("end H", "Kubernetes pods are scheduled by theH"),
        ("home H i", "HiKubernetes pods are scheduled by the"),
        ("backspace H", "H"),
        ("tab shift+tab H", "H"),
    ],
)
async def test_typing_replaces_the_old_prompt_and_a_cursor_key_keeps_it(
    keys: str, text: str
) -> None:
    async with screen() as (pilot, app, _source):
        await pilot.press("ctrl+n")
        await until(pilot, lambda: isinstance(app.screen, PromptScreen))
        area = app.screen.query_one("#prompt-text", TextArea)
        await until(pilot, lambda: area.has_focus)
        await pilot.press(*keys.split())
        await until(pilot, lambda: area.text == text)


async def test_what_is_typed_with_the_key_that_opens_replaces_it_too() -> None:
    async with screen() as (pilot, app, _source):
        app.main.action_new_prompt()
        await pilot.press(*"Hi")
        await until(pilot, lambda: isinstance(app.screen, PromptScreen))
        area = app.screen.query_one("#prompt-text", TextArea)
        await until(pilot, lambda: area.text == "Hi")
