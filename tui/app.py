"""The application: attaches to a daemon, opens or follows a session, and shows the main screen.

Knows how the parts are put together; what they do is theirs.
"""

import asyncio
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events, work
from textual.app import App
from textual.command import Provider
from textual.filter import Monochrome, NoColor

from engine_daemon.addressing import attach_line, find_session, newest_session, typed_command
from engine_daemon.errors import Exit, InspectError
from engine_daemon.lookup import is_running
from engine_daemon.paths import DEFAULT_NAME, Paths, name_option
from engine_daemon.protocol.commands import Open
from engine_daemon.protocol.state import State
from engine_daemon.protocol.values import PromptSpec
from tui.commands import ActionProvider
from tui.in_order import Acted, InOrder
from tui.screens.main import MainScreen
from tui.source import OpenSource
from tui.standstill import PERIOD_S, Standstill, drop_unread
from tui.terminal import CHECK_S, EXIT_CODE, GRACE_S, ensure_size, hung_up, on_waking, resize_in
from tui.text import show_text
from tui.theming import COLOURLESS_THEME, DEFAULT_THEME, TERMINAL_ROLES, offered, read_themes
from tui.view import View
from tui.widgets.typed_ahead import take_typed

if TYPE_CHECKING:  # zmq, after the first picture
    from engine_daemon.mending import Tunnel


class InspectApp(App[InspectError]):
    """One viewer. Its result is the error that ended it, or None.

    Args:
        attach: makes the source; entered once the first picture is on screen.
        open_command: a session to open; else `session` (name, prefix or title) is shown; else the
            most recent open one.
        last: done before the process ends without the application's leave.
    """

    CSS_PATH = "app.tcss"
    TITLE = "llm-inspect"
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {ActionProvider}
    ENABLE_COMMAND_PALETTE = True

    def __init__(
        self,
        attach: Callable[[], OpenSource],
        *,
        open_command: Open | None = None,
        session: str | None = None,
        observe: bool = False,
        theme: str | None = None,
        config: Path | None = None,
        last: Callable[[], None] | None = None,
    ) -> None:
        if os.environ.get("NO_COLOR") == "":  # as good as not set, says no-color.org
            del os.environ["NO_COLOR"]
        super().__init__()
        self._last = last
        self._source = attach
        self._open = open_command
        self._wanted = session
        self._standstill = Standstill(lambda: drop_unread(terminal()))
        self._in_order = InOrder(self, self._given)
        self.view = View()
        self.view.opening = open_command is not None or session is not None
        self.main = self.make_main(observe=observe)
        for one in read_themes(config).values():
            self.register_theme(one)
        names = offered(self.available_themes)
        if theme is not None and theme not in names:
            raise InspectError(
                f"no theme named {show_text(theme)}", f"There are: {', '.join(names)}"
            )
        self.theme = theme or DEFAULT_THEME
        if self.no_color:
            self._without_colour()

    def _without_colour(self) -> None:
        """NO_COLOR: none at all, not Textual's greys. The theme that knows no grounds says with
        signs, bold, reverse and underline what the others say with them."""
        self._filters = [one for one in self._filters if not isinstance(one, Monochrome)]
        self._filters.append(NoColor())
        self.theme = COLOURLESS_THEME

    def make_main(self, *, observe: bool) -> MainScreen:
        """The screen under every other."""
        return MainScreen(self.view, observe=observe)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Roles for themes that are not ours."""
        return dict(TERMINAL_ROLES)

    def get_default_screen(self) -> MainScreen:
        """The main screen lies under every other."""
        return self.main

    def on_load(self) -> None:
        """SIGTERM gives the terminal back; the terminal's end (SIGHUP) leaves nothing behind."""
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            leave = partial(self.exit, return_code=Exit.TERMINATED)
            loop.add_signal_handler(signal.SIGTERM, leave)
            if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
                loop.add_signal_handler(signal.SIGHUP, self._leave_now)

    def on_mount(self) -> None:
        """Attach once there is something on screen."""
        self.call_after_refresh(self._serve)
        if not self.is_headless:
            self.set_interval(CHECK_S, self._leave_a_dead_terminal)
            self.set_interval(PERIOD_S, self._look_whether_it_stood)
            on_waking(self._driver, self._woke)
            self._hear_resizes()
            self.app_resume_signal.subscribe(self, self._hear_resizes)

    def _hear_resizes(self, _app: object = None) -> None:
        """Also after every suspension: then the driver has put its own handler back."""
        resize_in(asyncio.get_running_loop())

    def action_command_palette(self) -> None:
        """The palette of commands."""
        from tui.screens.command_palette import SettledPalette

        if not isinstance(self.screen, SettledPalette):
            self.push_screen(SettledPalette(id="--command-palette"))

    def _woke(self) -> None:
        """Stopped from outside, and let go on: the terminal may show something else by now."""
        self._standstill.look()
        self.call_later(self._look_whether_it_stood)
        self.call_later(self.refresh)

    def _look_whether_it_stood(self) -> None:
        self._standstill.look()
        if self._standstill.unsaid:
            self._standstill.unsaid = False
            self.main.tell_dropped(self._standstill.stood_s)

    def _leave_a_dead_terminal(self) -> None:
        if hung_up(terminal()):
            self._leave_now()

    def _leave_now(self) -> None:
        leaving = threading.Timer(GRACE_S, self._end_process)
        leaving.daemon = True
        leaving.start()
        self.exit(return_code=EXIT_CODE)

    def _end_process(self) -> None:
        if self._last is not None:
            self._last()
        os._exit(EXIT_CODE)

    def action_use_theme(self, name: str) -> None:
        """Use a theme by its name."""
        self.theme = name

    async def on_event(self, event: events.Event) -> None:
        """Keys go one after the other."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self._in_order.take(event)
        else:
            await self._given(event)

    async def _given(self, event: events.Event) -> None:
        """Input that was given while this process stood still goes nowhere."""
        given = isinstance(event, events.InputEvent | events.Paste)
        if given and not self.is_headless and self._standstill.drops(event.time):
            event.stop()
            self._look_whether_it_stood()
            return
        await super().on_event(event)

    async def on_acted(self, behind: Acted) -> None:
        """A key has been all the way."""
        await self._in_order.back(behind)

    def on_key(self, event: events.Key) -> None:
        """A key that nothing took."""
        if isinstance(self.screen, MainScreen):
            self.screen.take_key(event)
        else:
            take_typed(self.screen, event)

    @work(exclusive=True, group="feed", exit_on_error=False)
    async def _serve(self) -> None:
        try:
            async with self._source() as source:
                self._begin(source.state)
                await self.main.serve(source)
        except InspectError as error:
            self.exit(error)

    @work(group="begin", exit_on_error=False)
    async def _begin(self, state: State) -> None:
        await self.begin(state)
        self.view.opening = False
        self.main.paint()

    async def begin(self, state: State) -> None:
        """What is to be on screen first."""
        main = self.main
        assert main.feed is not None
        try:
            if self._open is not None:
                await main.open(self._open)
                return
            session = (
                newest_session(state.sessions)
                if self._wanted is None
                else find_session(state.sessions, self._wanted).session
            )
        except InspectError as error:
            self.exit(error)
            return
        if session is not None:
            main.feed.follow(session)


def last_line(view: View, paths: Paths) -> str:
    """What the command says last of a session that is open: how to come back to it, and what is
    needed for that where the daemon cannot be reached."""
    assert view.session is not None
    line = attach_line(paths.name, view.session)
    if view.link:
        return f"The session goes on. Come back: {line}"
    if paths.endpoint is None and not is_running(paths):
        start = f"{typed_command()} daemon start{name_option(paths.name)}"
        named = f"the daemon {paths.name} is not running"
        return f"The session stands: {named}. Come back: {start}, then {line}"
    return f"The link was lost ({show_text(view.link_text)}). Come back once it is there: {line}"


def terminal() -> int:
    """The descriptor keys come from."""
    return sys.__stdin__.fileno() if sys.__stdin__ else -1


def prepare_terminal() -> None:
    """What is done before the screen takes it."""
    ensure_size(terminal())
    # Leaving drops what was asked for and not begun; Python would tell of each on the terminal.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)


def run_screen(
    paths: Paths,
    *,
    prompt: PromptSpec | None = None,
    open_command: Open | None = None,
    session: str | None = None,
    observe: bool = False,
    who: str | None = None,
    theme: str | None = None,
    tunnel: "Tunnel | None" = None,
) -> int:
    """Run the screen on a running daemon until the person leaves; the command's exit code.

    `open_command` opens a session, `prompt` does so with everything else as it is by default.
    `tunnel`: what a daemon on another machine is reached through.
    """
    if open_command is None and prompt is not None:
        open_command = Open(prompt=prompt)

    def attach() -> OpenSource:
        from engine_daemon.client import DaemonClient  # zmq, after the first picture

        return DaemonClient(paths, who=who, client="tui", observe=observe, tunnel=tunnel)

    app = InspectApp(
        attach,
        open_command=open_command,
        session=session,
        observe=observe,
        theme=theme,
        config=paths.config,
        last=None if tunnel is None else tunnel.close,
    )
    app.view.where = "" if paths.name == DEFAULT_NAME else paths.name.removeprefix("ssh://")
    prepare_terminal()
    error = app.run()
    if error is not None:
        raise error
    if app.view.session is not None and app.view.columns.status != "closed":
        print(last_line(app.view, paths))  # noqa: T201
    return app.return_code or 0
