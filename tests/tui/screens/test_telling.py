"""What is said to the person: in the last line, whole, and never over anything."""

from pathlib import Path

import pytest
from textual.widgets._toast import Toast

from engine_daemon.errors import InspectError
from tests.tui.pilot import keys, said, screen, until
from tests.tui.source import FakeSource
from tests.tui.story import Story, state
from tui.screens.keys import KeysBar
from tui.text import SafeText

LONG = InspectError(
    "this prompt has 9 001 tokens, the session may hold 8 192 of them and the model knows no more",
    "Use a shorter prompt, or a model with a longer context (llm-inspect models list)",
    code="context_full",
)


def shown(bar: KeysBar) -> str:
    """The bar's rows as one text."""
    lines = [bar.render_line(y).text.strip() for y in range(bar.size.height)]
    return " ".join(lines)


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_a_long_error_is_whole_and_covers_nothing(size: tuple[int, int]) -> None:
    async with screen(size=size) as (pilot, app, source):
        source.refuse = LONG
        await pilot.press("s")
        await until(pilot, lambda: bool(said(app)))
        bar = app.main.query_one(KeysBar)
        await until(pilot, lambda: shown(bar) == f"{LONG.message} · {LONG.hint}")
        top = bar.region.y
        assert all(pane.region.bottom <= top for pane in app.main.query("#body > *"))
        await pilot.press("S")
        await until(pilot, lambda: bar.size.height == 1)
        assert "q quit" in keys(app)


async def test_what_was_not_sent_is_not_said_on_once_the_link_is_back() -> None:
    async with screen() as (pilot, app, source):
        source.lose_link()
        await until(pilot, lambda: not app.view.link)
        await pilot.press("s")
        await until(pilot, lambda: "not sent" in said(app))
        source.mend_link()
        await until(pilot, lambda: said(app) == "the link is back; press again what you want")
        await pilot.press("s")
        await until(pilot, lambda: app.view.columns.place.step == 4)
        assert said(app) == ""


async def test_a_link_that_is_lost_while_an_answer_is_waited_for() -> None:
    """Its loss may be heard of later than what it did to the key."""
    async with screen() as (pilot, app, source):
        source.refuse = InspectError("not confirmed: silent", "Attach again", code="link_lost")
        await pilot.press("s")
        await until(pilot, lambda: "not confirmed" in said(app))
        app.main.paint()
        assert "not confirmed" in said(app)
        source.lose_link()
        await until(pilot, lambda: not app.view.link)
        assert "not confirmed" in said(app)
        source.mend_link()
        await until(pilot, lambda: said(app).startswith("the link is back; what was not confirmed"))


async def test_other_words_stay_when_a_link_comes_back() -> None:
    async with screen() as (pilot, app, source):
        source.lose_link()
        await until(pilot, lambda: not app.view.link)
        await pilot.press("s")
        await until(pilot, lambda: "not sent" in said(app))
        await pilot.press("y")
        await until(pilot, lambda: "copied" in said(app))
        source.mend_link()
        await until(pilot, lambda: app.view.link)
        app.main.paint()
        assert "link is back" not in said(app)


async def test_a_small_terminal_keeps_room_for_the_rest() -> None:
    async with screen(size=(20, 5)) as (pilot, app, source):
        source.refuse = LONG
        await pilot.press("s")
        await until(pilot, lambda: bool(said(app)))
        await pilot.pause()
        assert app.main.query_one(KeysBar).size.height == 1
        assert app.main.query_one("#glance").size.height == 4


async def test_nothing_lies_over_a_form() -> None:
    source = FakeSource(Story().predict().stop(), state())
    async with screen(source=source, size=(80, 24)) as (pilot, app, _):
        app.main.say("something was done", calm=True)
        app.main.say(LONG)
        await pilot.press("ctrl+n")
        await pilot.pause()
        app.main.say(LONG)
        await pilot.pause()
        assert not app.screen.query(Toast)
        assert not app.main.query(Toast)


async def test_going_on_past_the_limit_of_steps_says_that_there_is_none_now() -> None:
    story = Story().add_limit(2)
    story.tokens((b" one", 0.5)).predict().pick(9, b" two", 0.5, stop="length")
    async with screen(story.stop("length", pending=False)) as (pilot, app, source):
        await pilot.press("space")
        past = "past the limit of 2 steps: runs on to EOS or a full context; space pauses"
        await until(pilot, lambda: said(app) == past)
        await until(pilot, lambda: app.view.running)
        story.predict()
        await pilot.press("space")
        await until(pilot, lambda: not app.view.running)
        assert said(app) == ""
        await pilot.press("space")
        await until(pilot, lambda: app.view.running)
        assert said(app) == ""
        assert len(source.sent) == 3


async def test_what_was_done_is_said_for_a_while() -> None:
    async with screen() as (_pilot, app, _source):
        bar = app.main.query_one(KeysBar)
        app.main.say("done", calm=True)
        assert said(app) == "done"
        assert bar._until is not None
        bar._fall_silent()
        assert said(app) == ""
        app.main.tell(SafeText("a question?"))
        assert bar._until is None  # it waits for its answer


def test_there_is_one_way_of_telling() -> None:
    folder = Path(__file__).parents[3] / "tui"
    found = [path for path in folder.rglob("*.py") if "notify(" in path.read_text()]
    assert found == []
