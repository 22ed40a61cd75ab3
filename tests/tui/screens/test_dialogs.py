"""Dialogs over the main screen: prompt, sampler, sessions, help, palette."""

from functools import partial
from pathlib import Path

import msgspec
import pytest
from textual.containers import VerticalScroll
from textual.geometry import Region
from textual.widgets import Input, OptionList, TextArea

from engine_daemon.protocol.commands import (
    At,
    Close,
    Open,
    SetSampler,
)
from engine_daemon.protocol.events import ConditionAdded, SamplerSet
from engine_daemon.protocol.state import Place
from engine_daemon.protocol.values import Sampler
from tests.tui.pilot import rows, said, screen, until
from tests.tui.source import FakeSource
from tests.tui.story import SESSION, paused, state
from tui.app import InspectApp
from tui.glossary import GLOSSARY
from tui.keymap import ACTIONS
from tui.screens.help import HelpScreen
from tui.screens.prompt import PromptScreen
from tui.screens.sampler import SamplerScreen
from tui.screens.sessions import SessionsScreen
from tui.widgets.sampler_form import FIELDS
from tui.widgets.toggle import Toggle


async def test_new_prompt_opens_a_session() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("ctrl+n")
        await until(pilot, lambda: isinstance(app.screen, PromptScreen))
        app.screen.query_one("#prompt-text", TextArea).text = ""
        await pilot.pause()
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


async def test_new_prompt_says_which_breakpoints_go_with_it() -> None:
    async with screen() as (pilot, app, _source):
        added = ConditionAdded(number=1, source="entropy>5", t_ns=0, wall_ns=0)
        app.view.columns.conditions[1] = added
        await pilot.press("ctrl+n")
        await until(pilot, lambda: "8 tokens · stops at entropy>5" in picture(app))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_new_prompt_says_what_enter_does(size: tuple[int, int]) -> None:
    async with screen(size=size) as (pilot, app, _source):
        await pilot.press("ctrl+n")
        await until(pilot, lambda: isinstance(app.screen, PromptScreen))
        area = app.screen.query_one("#prompt-text", TextArea)
        await until(pilot, lambda: area.region.height > 2)
        bottom = area.render_lines(Region(0, area.region.height - 1, area.region.width, 1))
        assert "enter: new line · tab: next field · ctrl+s opens" in bottom[0].text
        assert app.screen.region.contains_region(area.region)


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
        await until(pilot, lambda: "from step 3 on: T 0.7 top-p 0.9 seed 42" in said(app))
        await until(pilot, lambda: app.view.columns.sampler == sampler)
        rows(app, "next-token")
        pane = app.main.query_one("#next-token")
        assert str(pane.border_subtitle).startswith("T 0.7 top-p 0.9 seed 42")
        await pilot.press("S")
        rows(app, "next-token")
        assert "top-p" not in f"{pane.border_title}{pane.border_subtitle}"


async def test_editing_a_field_of_the_draw_switches_greedy_off() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("p")
        await until(pilot, lambda: isinstance(app.screen, SamplerScreen))
        greedy = app.screen.query_one("#greedy", Toggle)
        field = app.screen.query_one("#field-temperature", Input)
        assert field.has_class("-idle")
        await pilot.press("tab")
        await until(pilot, lambda: app.focused is field)
        assert greedy.value  # going through the fields changes nothing
        await pilot.press("0", "full_stop", "7")
        await until(pilot, lambda: field.value == "0.7" and not greedy.value)
        assert not any(one.has_class("-idle") for one in app.screen.query(Input))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(source.sent))
        command = source.sent[0][0]
        assert isinstance(command, SetSampler)
        assert (command.sampler.greedy, command.sampler.temperature) == (False, 0.7)
        assert command.sampler.repetition_penalty == 1.0


async def test_what_was_wrong_goes_when_it_is_right_and_temperature_0_is_greedy() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("p")
        await until(pilot, lambda: isinstance(app.screen, SamplerScreen))

        def told() -> str:
            return str(app.screen.query_one("#complaint").render())

        await pilot.press("space")
        for name, wrong, reason in (
            ("top_p", "1.5", "top-p cannot be 1.5: above 0, at most 1"),
            ("repetition_penalty", "-1", "repetition cannot be -1: from 0.01 to 100"),
            ("top_k", "1.5", "top-k cannot be 1.5: a whole number"),
        ):
            field = app.screen.query_one(f"#field-{name}", Input)
            right, field.value = field.value, wrong
            await pilot.press("enter")
            await until(pilot, partial(lambda words: words in told(), reason))
            field.value = right
            await until(pilot, lambda: "cannot be" not in told())
            assert not app.screen.query_one("#complaint").has_class("wrong")
        app.screen.query_one("#field-temperature", Input).value = "0"
        app.screen.query_one("#field-presence_penalty", Input).value = "0.5"
        await pilot.press("enter")
        await until(pilot, lambda: bool(source.sent))
        command = source.sent[0][0]
        assert isinstance(command, SetSampler)
        assert command.sampler == Sampler(greedy=True, presence_penalty=0.5)


async def test_a_narrow_new_prompt_cuts_no_words() -> None:
    for size, hints in (((70, 24), False), ((80, 24), True), ((120, 40), True)):
        async with screen(size=size) as (pilot, app, _source):
            await pilot.press("ctrl+n")
            await until(pilot, partial(lambda on: isinstance(on.screen, PromptScreen), app))
            await pilot.pause()
            shown = [one for one in app.screen.query(".field-hint, .field-label") if one.display]
            assert any(one.has_class("field-hint") for one in shown) == hints
            for one in shown:
                assert one.content_size.width >= len(str(one.render())), one


async def test_new_prompt_starts_from_the_session_on_screen() -> None:
    story = paused()
    seed = 9_876_543_210_987_654_321
    sampler = Sampler(greedy=False, temperature=0.8, top_p=0.9, seed=seed)
    story.add(SamplerSet(t_ns=1, wall_ns=1, step=3, sampler=sampler))
    async with screen(story, size=(80, 30)) as (pilot, app, source):
        await pilot.press("ctrl+n")
        await until(pilot, lambda: isinstance(app.screen, PromptScreen))
        text = app.screen.query_one("#prompt-text", TextArea).text
        assert text == "Kubernetes pods are scheduled by the"
        field = app.screen.query_one("#field-seed", Input)
        assert field.value == str(seed)
        assert field.content_size.width > len(str(seed))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(source.sent))
        command = source.sent[0][0]
        assert isinstance(command, Open)
        assert command.sampler == sampler
        assert (command.candidates, command.limit_tokens) == (20, 8192)


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


async def test_sessions_have_gaps_and_say_at_80_columns_what_is_not_in_memory() -> None:
    known = state()
    (here,) = known.sessions
    ended = Place(kind="ended", step=200_000, reason="length")
    title = "Once upon a time there was a title that is longer than any list"
    away = msgspec.structs.replace(
        here, session="9XXXXXXX", status="ended", place=ended, title=title, resident=False
    )
    source = FakeSource(paused(), first=msgspec.structs.replace(known, sessions=[here, away]))
    async with screen(source=source, size=(80, 24)) as (pilot, app, _source):
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        await pilot.pause()
        choices = app.screen.query_one(OptionList)
        lines = [choices.render_line(y).text for y in range(2)]
        (gone,) = [line for line in lines if "9XXXXXXX" in line]
        assert "ended   step 200000 (length)  not in memory  Once" in gone
        assert gone.rstrip().endswith("…")
        (held,) = [line for line in lines if SESSION in line]
        assert held.index("Kube") == gone.index("Once")


async def test_help_names_every_action() -> None:
    async with screen() as (pilot, app, _source):
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        text = "\n".join(str(widget.render()) for widget in app.screen.query("Static"))
        for action in ACTIONS:
            assert action.help in text
        await pilot.press("escape")
        assert app.screen is app.main


async def test_help_explains_every_mark() -> None:
    async with screen() as (pilot, app, _source):
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        text = "\n".join(str(widget.render()) for widget in app.screen.query("Static"))
        memory = ("growing", "fixed", "allocated")
        for mark in ("underline", "stripes", "ties cut", "probe", "×", "•", "<0.1 %", *memory):
            assert mark in text


async def test_help_scrolls_and_wraps_inside_its_column() -> None:
    async with screen(size=(70, 24)) as (pilot, app, _source):
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.pause()
        box = app.screen.query_one("#help")
        await pilot.press("G")
        await until(pilot, lambda: box.scroll_y == box.max_scroll_y > 0)
        await pilot.press("up", "k")
        await until(pilot, lambda: box.scroll_y == box.max_scroll_y - 2)
        await pilot.press("g")
        await until(pilot, lambda: box.scroll_y == 0)
        await pilot.press("down", "j")
        await until(pilot, lambda: box.scroll_y == 2)
        for cell in app.screen.query(".help-rows > Static"):
            assert cell.region.right <= box.region.right - 1
        left = {cell.region.x for cell in app.screen.query(".help-rows > Static")}
        assert len(left) == 2


async def test_palette_runs_an_action() -> None:
    async with screen() as (pilot, app, _source):
        await pilot.press("colon")
        await pilot.press(*"first")
        await pilot.pause(0.3)
        await pilot.press("enter")
        await until(pilot, lambda: app.view.at == 0)


async def test_a_dialog_is_answered_once() -> None:
    async with screen() as (pilot, app, _source):
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        dialog = app.screen
        assert isinstance(dialog, SessionsScreen)
        dialog.action_attach()
        dialog.action_attach()
        await until(pilot, lambda: app.screen is app.main)
        await pilot.pause()
        assert app.is_running


def picture(app: InspectApp) -> str:
    """All that is on screen, as text."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(part.text for part in strip) for strip in strips)


@pytest.mark.parametrize("template", [False, True])
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_new_prompt_form_is_whole(size: tuple[int, int], template: bool) -> None:
    async with screen(size=size) as (pilot, app, _source):
        await pilot.press("ctrl+n", *(("tab", "space") if template else ()))
        await until(pilot, lambda: "8 tokens" in picture(app))
        shown = picture(app)
        for field in FIELDS:
            hint = field.hint if field.name != "seed" else "empty = random"
            assert f"{field.label} " in shown
            assert hint in shown, field.name
        for words in (
            "NEW PROMPT",
            "wrap it as a user's message",
            "always the most probable token",
            "enter: new line · tab: next field · ctrl+s opens",
            "^s open  esc cancel",
        ):
            assert words in shown
        assert ("system message, with the template" in shown) == template


@pytest.mark.parametrize("key", ["ctrl+n", "p", "b", "t", "m", "B", "i"])
async def test_every_field_of_a_dialog_can_be_seen_on_a_tiny_terminal(key: str) -> None:
    async with screen(size=(20, 5)) as (pilot, app, _source):
        await pilot.press(key)
        await pilot.pause()
        fields = [one for one in app.screen.focus_chain if one.region]
        assert fields
        for _ in fields:
            await pilot.pause()
            focused = app.screen.focused
            assert focused is not None
            assert app.screen.region.overlaps(focused.region)
            await pilot.press("tab")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_help_has_the_words_and_each_can_be_read(size: tuple[int, int]) -> None:
    async with screen(size=size) as (pilot, app, _source):
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.pause()
        await pilot.press("tab")
        await until(pilot, lambda: "What the words mean" in picture(app))
        seen, last = "", -1.0
        box = app.screen.query_one("#help", VerticalScroll)
        while box.scroll_y != last:
            last = box.scroll_y
            seen += " ".join(line.strip("│ ▁▂▃▄▅▆▇█") for line in picture(app).splitlines())
            await pilot.press("pagedown")
            await pilot.pause()
        for word, meaning in GLOSSARY:
            assert f" {word} " in seen
            for part in meaning.split()[:3]:
                assert part in seen
        assert box.scroll_y == box.max_scroll_y
        await pilot.press("tab")
        await until(pilot, lambda: box.scroll_y < box.max_scroll_y)


def test_the_glossary_names_what_is_on_the_screen_and_the_readme_takes_it_from_there() -> None:
    words = [word for word, _ in GLOSSARY]
    numbers = {"logit", "logprob", "entropy", "margin", "perplexity", "rank"}
    sampler = {"top-k", "top-p", "min-p", "temperature", "seed", "greedy"}
    loop = {"token", "step", "KV cache", "prefill", "decode", "forward"}
    marks = {"u", "derived", "fast engine", "parked", "frozen", "ROLE", "LAG"}
    assert numbers | sampler | loop | marks <= set(words)
    assert "H where" in dict(GLOSSARY)["entropy"]
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    table = readme.split("### Words")[1].split("###")[0]
    rows_of = [line.strip("| ").split(" | ", 1) for line in table.splitlines() if line[:2] == "| "]
    told = [(word, meaning) for word, meaning in rows_of if word != "word"]
    assert len(told) > 12
    assert set(told) <= set(GLOSSARY)


def test_help_says_what_r_does_where_it_stands() -> None:
    (resample,) = (action for action in ACTIONS if action.name == "resample")
    assert resample.help.startswith("At the pending step: ")
    assert "At a step behind the head: " in resample.help
