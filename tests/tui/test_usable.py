"""What the last line offers is what acts: in each state of link, engine and session."""

import msgspec
import pytest

from engine_daemon.protocol.events import Closed
from engine_daemon.protocol.state import State
from tests.tui.pilot import Screen, keys, rows, said, screen, until
from tests.tui.source import FakeSource
from tests.tui.story import MODEL, Story, paused, state
from tui.app import InspectApp
from tui.keymap import ACTIONS
from tui.screens.branches import Beside, BranchesScreen
from tui.usable import COMMANDING

WIDE = (200, 40)


def offered(line: str) -> set[str]:
    """Labels of the last line that say that the engine is to do something."""
    known = ("pause/run", "step", "choose", "force", "sampler", "breakpoint", "new prompt")
    return {label for label in known if f" {label}" in line}


async def offers(pilot: Screen, app: InspectApp, labels: set[str]) -> None:
    """Wait until the last line offers just these."""
    await until(pilot, lambda: offered(keys(app)) == labels)


def closed() -> Story:
    story = paused()
    story.add(Closed(t_ns=1, wall_ns=1, count=len(story.log), by="ann@box"))
    return story


async def test_a_paused_session_takes_everything() -> None:
    async with screen(size=WIDE) as (pilot, app, _source):
        await offers(
            pilot, app, {"pause/run", "step", "choose", "sampler", "breakpoint", "new prompt"}
        )


async def test_a_closed_session_offers_what_can_still_be_done() -> None:
    async with screen(closed(), size=WIDE) as (pilot, app, source):
        await offers(pilot, app, {"new prompt"})
        for key in ("space", "s", "p", "i"):
            await pilot.press(key)
            await until(pilot, lambda: "this session is closed" in said(app))
            assert f"llm-inspect open {app.view.session} goes on with it" in said(app)
            await pilot.press("G")
        assert app.screen is app.main
        assert source.sent == []


@pytest.mark.parametrize("asked", [True, False])
async def test_an_observer_is_offered_looking_only(asked: bool) -> None:
    """Whether it asked to watch, or the daemon lets it do no more."""
    served = FakeSource(paused())
    served.observer = True
    async with screen(source=served, observe=asked, size=WIDE) as (pilot, app, source):
        await until(pilot, lambda: "OBSERVING" in rows(app, "status")[0])
        await offers(pilot, app, set())
        await pilot.press("S")
        await offers(pilot, app, {"step"})  # on, to the head
        await pilot.press("s")
        await offers(pilot, app, set())
        for key in ("ctrl+n", "p", "i", "b", "m", "L", "[", "]"):
            await pilot.press(key)
            await until(pilot, lambda: "only observes" in said(app))
            assert app.screen is app.main
            await pilot.press("G")
            assert said(app) == ""
        assert source.sent == []


@pytest.mark.parametrize("size", [(80, 24), WIDE])
async def test_a_session_of_another_model_is_named_after_it_and_offers_looking_only(
    size: tuple[int, int],
) -> None:
    """The engine that is loaded made none of the numbers."""
    known = state(synthetic=True, model=msgspec.structs.replace(MODEL, name="scripted"))
    away = msgspec.structs.replace(known.sessions[0], other_model=True, resident=False)
    source = FakeSource(paused(), msgspec.structs.replace(known, sessions=[away]))
    async with screen(source=source, size=size) as (pilot, app, _source):
        await offers(pilot, app, {"new prompt"})
        (line,) = rows(app, "status")
        assert "SmolLM2" in line
        assert "READ-ONLY" in line
        assert "scripted" not in line.lower()
        assert "SYNTHETIC" not in line
        title = str(app.main.query_one("#next-token").border_title)
        assert "step 3" in title
        assert " recorded" in title
        assert len(title) <= app.main.query_one("#next-token").size.width - 2
        for key in ("space", "s", "p", "i", "r", "C"):
            await pilot.press(key)
            await until(pilot, lambda: "made with another model" in said(app))
            assert app.screen is app.main
            await pilot.press("G")
        assert source.sent == []


async def test_an_observer_reads_the_branches_and_stays_where_it_is() -> None:
    story = paused().command("force").branch(1).pick(9, b" API", 0.1, how="forced").predict().stop()
    async with screen(story, observe=True) as (pilot, app, source):
        for keys_ in ("enter", "up enter"):
            await pilot.press("B")
            await until(pilot, lambda: isinstance(app.screen, BranchesScreen))
            await pilot.press(*keys_.split())
            await until(pilot, lambda: said(app) == "this screen only observes")
            await pilot.press("G")
            assert said(app) == ""
        assert (app.view.columns.branch, source.sent) == (1, [])
    async with screen(observe=True) as (pilot, app, source):
        await pilot.press("B")
        await until(pilot, lambda: isinstance(app.screen, BranchesScreen))
        words = " ".join(app.screen.query_one(Beside).lines(76))
        assert words == "One branch so far: this screen only observes"


async def test_running_offers_no_step() -> None:
    story = Story().predict().stop().command("run_to", None).tokens((b" a", 0.5), (b" b", 0.5))
    async with screen(story, size=WIDE) as (pilot, app, _source):
        await offers(pilot, app, {"pause/run", "breakpoint", "new prompt"})
        await pilot.press("p")
        await until(pilot, lambda: "it is running" in said(app))
        assert app.screen is app.main


async def test_a_lost_link_offers_looking_only() -> None:
    async with screen(size=WIDE) as (pilot, app, source):
        source.lose_link()
        await until(pilot, lambda: not app.view.link)
        await offers(pilot, app, set())
        assert "back" in keys(app)


@pytest.mark.parametrize("word", ["loading", "dead"])
async def test_without_an_engine_nothing_is_run(word: str) -> None:
    source = FakeSource(paused(), state(word=word, message="it died"))
    async with screen(source=source, size=WIDE) as (pilot, app, _source):
        await offers(pilot, app, {"breakpoint", "new prompt"})


async def test_without_a_session_one_is_opened() -> None:
    none = state()
    source = FakeSource(Story(), State(engine=none.engine, sessions=[], viewers=[]))
    async with screen(source=source, ready=False, size=WIDE) as (pilot, app, _source):
        await until(pilot, lambda: app.main.feed is not None)
        app.main.paint()
        await offers(pilot, app, {"new prompt"})
        assert "back" not in keys(app)


def test_the_names_are_those_of_the_table() -> None:
    assert {action.id for action in ACTIONS} >= COMMANDING
