"""Dialogs over the main screen: prompt, sampler, sessions, help, palette."""

from textual.widgets import Input, OptionList

from engine_daemon.protocol.commands import (
    At,
    Close,
    Open,
    SetSampler,
)
from tests.tui.pilot import screen, until
from tests.tui.story import SESSION
from tui.keymap import ACTIONS
from tui.screens.help import HelpScreen
from tui.screens.prompt import PromptScreen
from tui.screens.sampler import SamplerScreen
from tui.screens.sessions import SessionsScreen


async def test_new_prompt_opens_a_session() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("ctrl+n")
        await until(pilot, lambda: isinstance(app.screen, PromptScreen))
        await pilot.press("ctrl+s")
        assert "empty" in str(app.screen.query_one("#complaint").render())
        await pilot.press("H", "i", "enter", "q")
        await until(pilot, lambda: "8 tokens" in str(app.screen.query_one("#complaint").render()))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(source.sent))
        command = source.sent[0][0]
        assert isinstance(command, Open)
        assert command.prompt.text == b"Hi\nq"
        assert command.run_to == 0
        assert app.screen is app.main


async def test_new_prompt_can_be_left() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("ctrl+n")
        await until(pilot, lambda: isinstance(app.screen, PromptScreen))
        await pilot.press("x", "escape")
        await until(pilot, lambda: app.screen is app.main)
        assert source.sent == []


async def test_sampler_settings() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("p")
        await until(pilot, lambda: isinstance(app.screen, SamplerScreen))
        await pilot.press("space")
        app.screen.query_one("#field-temperature", Input).value = "0.7"
        app.screen.query_one("#field-top_p", Input).value = "1.5"
        await pilot.press("enter")
        assert "top-p cannot be 1.5" in str(app.screen.query_one("#complaint").render())
        app.screen.query_one("#field-top_p", Input).value = "0.9"
        app.screen.query_one("#field-seed", Input).value = "42"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(source.sent))
        command, _, at = source.sent[0]
        assert isinstance(command, SetSampler)
        sampler = command.sampler
        assert (sampler.greedy, sampler.temperature, sampler.top_p) == (False, 0.7, 0.9)
        assert sampler.seed == 42
        assert at == At(branch=0, step=3)


async def test_sessions_are_chosen_and_closed() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        assert app.screen.query_one(OptionList).option_count == 1
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.main)
        assert app.view.session == SESSION
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        await pilot.press("x")
        await until(pilot, lambda: bool(source.sent))
        assert source.sent[0][:2] == (Close(), SESSION)


async def test_help_names_every_action() -> None:
    async with screen() as (pilot, app, _source):
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        text = "\n".join(str(widget.render()) for widget in app.screen.query("Static"))
        for action in ACTIONS:
            assert action.help in text
        await pilot.press("escape")
        assert app.screen is app.main


async def test_palette_runs_an_action() -> None:
    async with screen() as (pilot, app, _source):
        await pilot.press("colon")
        await pilot.press(*"first")
        await pilot.pause(0.3)
        await pilot.press("enter")
        await until(pilot, lambda: app.view.at == 0)
