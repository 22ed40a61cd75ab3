"""Typing into the new prompt, which begins with the one on screen; going through its fields."""

from typing import Literal

import pytest
from textual.widgets import Input, TextArea

from engine_daemon.protocol.commands import Open
from engine_daemon.protocol.events import SessionSet
from tests.tui.pilot import Screen, screen, until
from tests.tui.story import Story
from tui.app import InspectApp
from tui.screens.prompt import PromptScreen
from tui.screens.sampler import SamplerScreen
from tui.widgets.sampler_form import FIELDS, SamplerForm
from tui.widgets.toggle import Toggle


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


async def test_the_fields_of_a_sampler_are_gone_through_up_and_down() -> None:
    async with screen(size=(80, 24)) as (pilot, app, source):
        await pilot.press("p")
        await until(pilot, lambda: isinstance(app.screen, SamplerScreen))
        before = app.screen.query_one(SamplerForm).value()
        names = ["greedy", *(f"field-{field.name}" for field in FIELDS)]
        gone_through = [await _focused_after(pilot, app, "down") for _ in names]
        assert gone_through == [*names[1:], names[-1]]
        assert [await _focused_after(pilot, app, "up") for _ in names] == [*names[-2::-1], names[0]]
        assert app.screen.query_one(SamplerForm).value() == before
        assert source.sent == []


async def test_a_prompt_is_gone_up_and_down_in_and_its_fields_between_each_other() -> None:
    async with screen(size=(120, 40)) as (pilot, app, _):
        await pilot.press("ctrl+n")
        await until(pilot, lambda: isinstance(app.screen, PromptScreen))
        assert await _focused_after(pilot, app, "down") == "prompt-text"
        assert await _focused_after(pilot, app, "tab") == "template"
        assert await _focused_after(pilot, app, "down") == "kv-cache"
        assert await _focused_after(pilot, app, "down") == "greedy"
        assert await _focused_after(pilot, app, "down") == "field-temperature"
        below = await _focused_after(pilot, app, "down")
        fields = {one.id: one.region for one in app.screen.query(Input)}
        assert fields[below].x == fields["field-temperature"].x
        assert fields[below].y == fields["field-temperature"].y + 1
        assert await _focused_after(pilot, app, "up") == "field-temperature"
        assert await _focused_after(pilot, app, "up") == "greedy"
        assert await _focused_after(pilot, app, "up") == "kv-cache"
        assert await _focused_after(pilot, app, "up") == "template"
        assert await _focused_after(pilot, app, "up") == "prompt-text"


@pytest.mark.parametrize(("mode", "other"), [("none", "kv"), ("kv", "none")])
async def test_a_new_session_has_the_cache_mode_that_its_field_says(
    mode: Literal["kv", "none"], other: Literal["kv", "none"]
) -> None:
    """It begins with the one on screen, and is switched there."""
    story = Story()
    session_set = SessionSet(
        t_ns=1, wall_ns=1, candidates=20, cache_mode=mode, limit_tokens=8192, max_steps=None
    )
    story.add(session_set)
    async with screen(story.predict().stop()) as (pilot, app, source):
        for keys, opened in (("", mode), ("space", other)):
            await pilot.press("ctrl+n")
            await until(pilot, lambda: isinstance(app.screen, PromptScreen))
            field = app.screen.query_one("#kv-cache", Toggle)
            assert field.value == (mode == "kv")
            field.focus()
            await pilot.press(*keys.split(), "ctrl+s")
            await until(pilot, lambda: app.screen is app.main)
            await until(pilot, lambda: bool(source.sent))
            command = source.sent.pop()[0]
            assert isinstance(command, Open)
            assert command.cache_mode == opened


async def _focused_after(pilot: Screen, app: InspectApp, key: str) -> str | None:
    await pilot.press(key)
    await pilot.pause()
    return None if app.focused is None else app.focused.id
