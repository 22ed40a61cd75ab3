"""A stuck engine: said in the first line, looked into and ended by keys."""

import msgspec

from engine_daemon.errors import InspectError
from engine_daemon.protocol.commands import Answer, KillEngine
from engine_daemon.protocol.reads import AskStacks
from engine_daemon.protocol.state import EngineDetails, Stuck
from tests.tui.pilot import keys, rows, screen, until
from tests.tui.source import FakeSource
from tests.tui.story import Story, state
from tui.app import InspectApp
from tui.screens.engine import EngineScreen
from tui.screens.keys import KeysBar

STACKS = "rank 0:\nMainThread:\n  in forward\n\nrank 1:\ndoes not answer\n"


def hung() -> FakeSource:
    """A daemon whose second rank is stopped; the session runs and a pause is asked for."""
    stuck = Stuck(ranks=[1], why="halted", phase="", for_s=12)
    first = state(
        word="stuck",
        message="rank 1 is halted (SIGSTOP), for 12 s now",
        details=EngineDetails(pids=[4711, 4712], stuck=stuck),
    )
    (info,) = first.sessions
    running = msgspec.structs.replace(info, status="running", pausing=True)
    source = FakeSource(
        Story().predict().stop().command("run_to", None),
        msgspec.structs.replace(first, sessions=[running]),
    )
    source.answer = Answer(text=STACKS)
    return source


async def test_it_is_said_looked_into_and_ended() -> None:
    async with screen(source=hung()) as (pilot, app, source):
        line = rows(app, "status")[0]
        assert line.startswith(" ENGINE STUCK  rank 1 is halted (SIGSTOP), for 12 s now")
        assert "pause is asked · E looks into it" in line
        await pilot.press("E")
        await until(pilot, lambda: isinstance(app.screen, EngineScreen))
        await until(pilot, lambda: source.asked.count(AskStacks()) == 1)
        words = str(app.screen.query_one("#engine-state").render())
        assert "ranks 0: 4711, 1: 4712" in words
        await until(
            pilot, lambda: "does not answer" in str(app.screen.query_one("#engine-text").render())
        )
        await pilot.press("r")
        await until(pilot, lambda: source.asked.count(AskStacks()) == 2)
        await pilot.press("x")
        assert "end the engine?" in bar(app)
        for other in ("escape", "x", "q", "n"):
            await pilot.press(other)
            assert "no: the engine goes on" in bar(app)
            assert isinstance(app.screen, EngineScreen)
            await pilot.press("x")
            assert "end the engine?" in bar(app)
        assert source.sent == []
        await pilot.press("y")
        await until(pilot, lambda: source.sent == [(KillEngine(), None, None)])
        await until(pilot, lambda: not isinstance(app.screen, EngineScreen))
        assert "space" in keys(app)


def bar(app: InspectApp) -> str:
    """The last line of the dialog on top."""
    return app.screen.query_one(KeysBar).render_line(0).text


async def test_the_stacks_follow_the_state() -> None:
    source = hung()
    source.answer = Answer(text="rank 1:\nis halted: kill -CONT 4712 lets it go on\n")
    async with screen(source=source) as (pilot, app, _):
        await pilot.press("E")
        await until(pilot, lambda: isinstance(app.screen, EngineScreen))

        def body() -> str:
            return str(app.screen.query_one("#engine-text").render())

        await until(pilot, lambda: "is halted" in body())
        source.answer = Answer(text=STACKS)
        still = Stuck(ranks=[1], why="halted", phase="", for_s=13)
        pids = [4711, 4712]
        details = EngineDetails(pids=pids, stuck=still)
        source.set_state(state(word="stuck", message="for 13 s now", details=details))
        await until(pilot, lambda: "13 s" in str(app.screen.query_one("#engine-state").render()))
        assert source.asked.count(AskStacks()) == 1  # the same trouble, a second later
        busy = Stuck(ranks=[1], why="busy", phase="decode", for_s=14)
        details = EngineDetails(pids=pids, stuck=busy)
        source.set_state(state(word="stuck", message="a step has taken 14 s", details=details))
        await until(pilot, lambda: "in forward" in body())
        source.answer = Answer(text="rank 0:\nMainThread:\n  waits\n")
        source.set_state(state(details=EngineDetails(pids=pids)))
        await until(pilot, lambda: "waits" in body())
        assert "halted" not in body()


async def test_a_refusal_is_said_and_an_observer_cannot() -> None:
    async with screen(source=hung()) as (pilot, app, source):
        source.refuse = InspectError("only the daemon's own user may stop it", code="observer")
        await pilot.press("E")
        await until(pilot, lambda: isinstance(app.screen, EngineScreen))
        await pilot.press("x", "y")
        await until(pilot, lambda: "only the daemon's own user" in bar(app))
        await pilot.press("q")
        await until(pilot, lambda: not isinstance(app.screen, EngineScreen))
    async with screen(source=hung(), observe=True) as (pilot, app, source):
        await pilot.press("E")
        await until(pilot, lambda: isinstance(app.screen, EngineScreen))
        await pilot.press("x", "x")
        assert "only observes" in bar(app)
        assert source.sent == []
