"""Starting: which session is shown, what is said at the end, what is never imported."""

import asyncio
import subprocess
import sys
from dataclasses import replace

import pytest
from textual.widgets import OptionList

from engine_daemon.errors import Exit, InspectError
from engine_daemon.paths import paths_for
from engine_daemon.protocol.commands import AnyCommand, At, Open, Reply
from engine_daemon.protocol.values import PromptSpec
from tests.daemons import directories
from tests.tui.pilot import rows, said, until
from tests.tui.source import FakeSource
from tests.tui.story import SESSION, Story, paused
from tui.app import InspectApp, last_line
from tui.screens.sessions import SessionsScreen
from tui.view import View


async def test_a_prompt_opens_a_session_at_once() -> None:
    source = FakeSource(paused())
    command = Open(prompt=PromptSpec(text=b"Hello"))
    app = InspectApp(lambda: source, open_command=command)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.view.columns) == 3)
        assert source.sent[0][0] == command


async def test_while_a_session_is_opened_that_is_what_is_said() -> None:
    class Slow(FakeSource):
        answered = asyncio.Event()

        async def command(
            self, do: AnyCommand, session: str | None = None, at: At | None = None
        ) -> Reply:
            await self.answered.wait()
            return await super().command(do, session, at)

    source = Slow(paused())
    app = InspectApp(lambda: source, open_command=Open(prompt=PromptSpec(text=b"Hello")))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.main.control is not None)
        shown = "\n".join(rows(app, "sequence"))
        assert "Opening …" in shown
        assert "No session yet" not in shown
        source.answered.set()
        await until(pilot, lambda: len(app.view.columns) == 3)
        assert not app.view.opening


class Slow(FakeSource):
    """Attached when the test says so."""

    def __init__(self, story: Story) -> None:
        super().__init__(story)
        self.attached = asyncio.Event()

    async def __aenter__(self) -> "Slow":
        await self.attached.wait()
        return self


async def test_a_session_that_is_looked_for_is_being_opened() -> None:
    source = Slow(paused())
    app = InspectApp(lambda: source, session=SESSION)
    async with app.run_test(size=(80, 24)) as pilot:
        assert "Opening …" in "\n".join(rows(app, "sequence"))
        source.attached.set()
        await until(pilot, lambda: len(app.view.columns) == 3)


async def test_a_daemon_that_is_not_there_ends_it_with_its_error() -> None:
    class Nobody(FakeSource):
        async def __aenter__(self) -> "Nobody":
            raise InspectError("no daemon named default is running", exit_code=Exit.DAEMON)

    app = InspectApp(lambda: Nobody(paused()))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value is not None
    assert app.return_value.exit_code == Exit.DAEMON


async def test_before_the_first_state_nothing_is_claimed_of_sessions() -> None:
    source = Slow(paused())
    app = InspectApp(lambda: source)
    async with app.run_test(size=(80, 24)) as pilot:
        for key in ("t", "m", "b", "p", "L"):
            await pilot.press(key)
            await until(pilot, lambda: said(app) == "not attached yet")
            assert app.screen is app.main
            await pilot.press("escape")
            assert said(app) == ""
        source.attached.set()
        await until(pilot, lambda: len(app.view.columns) == 3)
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        assert app.screen.query_one(OptionList).option_count == 1


async def test_a_session_that_is_not_there_ends_it_with_its_error() -> None:
    app = InspectApp(lambda: FakeSource(paused()), session="ZZZZ")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value is not None
    assert app.return_value.exit_code == Exit.USAGE


def test_an_unknown_theme_is_refused() -> None:
    with pytest.raises(InspectError, match="no theme named"):
        InspectApp(lambda: FakeSource(paused()), theme="nope")


def test_heavy_modules_stay_out() -> None:
    code = (
        "import sys, tui.app; "
        "bad = {'torch', 'numpy', 'transformers', 'tokenizers', 'plotext'} & set(sys.modules); "
        "raise SystemExit(repr(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def test_what_could_not_be_opened_is_not_said_to_be_opening() -> None:
    source = FakeSource(paused())
    source.refuse = InspectError("there is no room for another session")
    app = InspectApp(lambda: source, open_command=Open(prompt=PromptSpec(text=b"Hello")))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: not app.view.opening)
        await until(pilot, lambda: "Opening …" not in "\n".join(rows(app, "sequence")))


def test_the_last_line_says_how_to_come_back_as_things_are() -> None:
    view = View()
    view.session = "7ZK3M9QP"
    with directories():
        paths = paths_for("disk")
        assert last_line(view, paths) == (
            "The session goes on. Come back: llm-inspect attach disk --session 7ZK3M9QP"
        )
        view.link, view.link_text = False, "the ssh link to box ended"
        assert last_line(view, paths) == (
            "The session stands: the daemon disk is not running. Come back: llm-inspect daemon"
            " start --name disk, then llm-inspect attach disk --session 7ZK3M9QP"
        )
        far = replace(paths, name="ssh://box", endpoint="ipc:///tmp/x")
        assert last_line(view, far) == (
            "The link was lost (the ssh link to box ended). Come back once it is there:"
            " llm-inspect attach ssh://box --session 7ZK3M9QP"
        )
