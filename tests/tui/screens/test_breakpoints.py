"""Breakpoints on the screen: the one-line input, the list, watched tokens, and where it stopped."""

import math

import pytest
from textual.widgets import Input, OptionList, Static

from engine_daemon.errors import InspectError
from engine_daemon.protocol.commands import AddCondition, Open, RemoveCondition
from engine_daemon.protocol.events import ConditionAdded, ConditionDisabled, Stopped, WatchSet
from engine_daemon.protocol.packing import pack_floats, pack_ints
from engine_daemon.protocol.values import TokenIds, Watched
from tests.tui.pilot import rows, said, screen, until
from tests.tui.story import Story, paused
from tui.app import InspectApp
from tui.screens.breakpoints import BreakpointsScreen
from tui.screens.keys import KeysBar
from tui.screens.prompt import PromptScreen
from tui.widgets.plot import STOP

WATCHED = Watched(
    ids=pack_ints("I", [17472, 900]),
    logit=pack_floats("f", [math.log(0.225), -math.inf]),
    rank=pack_ints("I", [1, 49_152]),
    piece_len=pack_ints("H", [3, 4]),
    pieces=b" Kunope",
)


def complaint(app: InspectApp) -> str:
    return str(app.screen.query_one("#complaint", Static).content)


def listed(app: InspectApp) -> list[str]:
    choices = app.screen.query_one(OptionList)
    return [str(choices.get_option_at_index(k).prompt) for k in range(choices.option_count)]


async def test_b_types_a_condition_and_enter_adds_it() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, BreakpointsScreen))
        assert isinstance(app.focused, Input)
        app.screen.query_one(Input).value = "entropy>3"
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(app.screen, BreakpointsScreen))
        assert [do for do, _, _ in source.sent] == [AddCondition(source="entropy>3")]
        assert "entropy>3" in said(app)
        await until(pilot, lambda: 1 in app.view.columns.conditions)


async def test_x_is_promised_where_it_removes() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, BreakpointsScreen))

        def footer() -> str:
            return " ".join(app.screen.query_one(KeysBar).render_line(0).text.split())

        assert footer() == "enter add esc cancel"  # nothing to remove
        await source.command(AddCondition(source="rank>5"), app.view.session)
        await until(pilot, lambda: footer() == "enter add tab, then x removes esc cancel")
        await pilot.press("x")
        assert app.screen.query_one(Input).value == "x"
        await pilot.press("tab")
        await until(pilot, lambda: footer() == "enter add x remove esc cancel")
        await pilot.press("x")
        await until(pilot, lambda: any(isinstance(do, RemoveCondition) for do, _, _ in source.sent))
        await until(pilot, lambda: listed(app) == ["No breakpoint yet"])


async def test_a_fault_is_shown_in_place_with_its_caret() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, BreakpointsScreen))
        line = app.screen.query_one(Input)
        line.value = "entropy>3 adn rank>5"
        await pilot.press("enter")
        await until(pilot, lambda: "adn" in complaint(app))
        assert complaint(app).split("\n")[:2] == ["entropy>3 adn rank>5", "          ^"]
        assert source.asked == []
        assert source.sent == []
        line.value = "entropy>3"
        await pilot.pause()
        assert "^" not in complaint(app)


async def test_what_the_daemon_says_is_shown_in_place() -> None:
    async with screen() as (pilot, app, source):
        source.refuse_condition = InspectError('"qx" is no single token', code="no_token")
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, BreakpointsScreen))
        app.screen.query_one(Input).value = 'token="qx"'
        await pilot.press("enter")
        await until(pilot, lambda: "no single token" in complaint(app))
        assert source.sent == []
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, BreakpointsScreen))


@pytest.mark.parametrize("by_daemon", [False, True])
async def test_what_is_refused_stays_and_is_gone_on_with(
    by_daemon: bool,
) -> None:
    typed = "rank>3" if by_daemon else "foo>3"
    async with screen() as (pilot, app, source):
        if by_daemon:
            source.refuse_condition = InspectError("no room for a condition", code="bad_arg")
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, BreakpointsScreen))
        line = app.screen.query_one(Input)
        await pilot.press(*typed, "enter")
        await until(pilot, lambda: ("no room" if by_daemon else "foo") in complaint(app))
        assert isinstance(app.screen, BreakpointsScreen)
        assert (line.value, line.selected_text) == (typed, "")
        source.refuse_condition = None
        await pilot.press(*["backspace"] * len(typed), *"rank>5")
        assert line.value == "rank>5"
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.main)
        assert [do for do, _, _ in source.sent] == [AddCondition(source="rank>5")]


async def test_the_list_and_removal() -> None:
    story = paused()
    for number, text in enumerate(("entropy>3", "text~'(a+)+'", "rank>5"), 1):
        story.add(ConditionAdded(t_ns=1, wall_ns=1, number=number, source=text))
    story.add(ConditionDisabled(t_ns=1, wall_ns=1, number=2, message="over 20 ms"))
    async with screen(story) as (pilot, app, source):
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, BreakpointsScreen))
        assert [row.split() for row in listed(app)] == [
            ["1", "entropy>3"],
            ["2", "text~'(a+)+'", "off:", "over", "20", "ms"],
            ["3", "rank>5"],
        ]
        await pilot.press("tab", "down", "x")
        await until(pilot, lambda: len(listed(app)) == 2)
        assert [do for do, _, _ in source.sent] == [RemoveCondition(number=2)]
        await pilot.press("escape")
        await until(pilot, lambda: list(app.view.columns.conditions) == [1, 3])


async def test_the_list_shows_what_comes_while_it_is_open() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, BreakpointsScreen))
        assert listed(app) == ["No breakpoint yet"]
        await source.command(AddCondition(source="rank>5"), app.view.session)
        await until(pilot, lambda: any("rank>5" in row for row in listed(app)))


async def test_hostile_conditions_cannot_steer_the_screen() -> None:
    story = paused()
    story.add(ConditionAdded(t_ns=1, wall_ns=1, number=1, source="[b]\x1b[31m\u202e"))
    async with screen(story) as (pilot, app, _):
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, BreakpointsScreen))
        (row,) = listed(app)
        assert "[b]" in row
        assert "\x1b" not in row
        assert "\u202e" not in row


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_watched_tokens_have_a_place_in_next_token(size: tuple[int, int]) -> None:
    story = Story().predict(watched=WATCHED).stop()
    async with screen(story, size=size) as (_, app, _source):
        lines = [line for line in rows(app, "next-token") if "◎" in line]
        assert len(lines) == 2
        assert "Ku" in lines[0]
        assert "22.5 %" in lines[0]
        assert "#1" in lines[0]
        assert "masked" in lines[1]
        assert "#49152" in lines[1]


def stopped_story(*, committed: bool) -> Story:
    story = Story().tokens(*((b" word", 0.4),) * 9)
    story.predict().pick(50, b" hit", 0.1, stop="condition" if committed else None)
    story.predict()
    source = "rank>3" if committed else "entropy>3"
    story.add(
        Stopped(
            t_ns=1,
            wall_ns=1,
            step=story.step,
            reason="condition",
            pending=True,
            condition=1,
            source=source,
            values={"entropy": 3.5},
        )
    )
    return story


@pytest.mark.parametrize("committed", [True, False])
async def test_where_a_condition_stopped_is_said_and_marked(committed: bool) -> None:
    async with screen(stopped_story(committed=committed)) as (_, app, _source):
        assert app.view.columns.fired == [(9 if committed else 10, 1)]
        source = "rank>3" if committed else "entropy>3"
        (status,) = rows(app, "status")
        assert f"condition 1: {source}" in status
        cost = rows(app, "cost")
        assert f"{STOP} breakpoint" in cost[0]
        assert any(STOP in line for line in cost[1:])


async def test_no_marker_without_a_stop() -> None:
    async with screen() as (_, app, _source):
        assert not any(STOP in line for line in rows(app, "cost"))


async def test_another_prompt_keeps_breakpoints_and_watch_list() -> None:
    story = paused()
    story.add(
        ConditionAdded(t_ns=1, wall_ns=1, number=1, source="step=3"),
        WatchSet(t_ns=1, wall_ns=1, tokens=[TokenIds(text=b" of", ids=pack_ints("I", [7]))]),
    )
    async with screen(story) as (pilot, app, source):
        await pilot.press("ctrl+n")
        await until(pilot, lambda: isinstance(app.screen, PromptScreen))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: any(isinstance(do, Open) for do, _, _ in source.sent))
        opened = next(do for do, _, _ in source.sent if isinstance(do, Open))
        assert (opened.until, opened.watch, opened.title) == (["step=3"], [b" of"], "")
