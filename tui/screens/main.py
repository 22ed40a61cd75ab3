"""The main screen: panes over one view, and what keys do to it.

Puts panes together and turns actions into intents; what an intent sends is in `control`.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Container

from engine_daemon.errors import InspectError
from engine_daemon.protocol.commands import Open
from tui.control import Control
from tui.feed import Feed
from tui.keymap import Scope, bindings, lone
from tui.openings import Openings
from tui.panes import PANES
from tui.panes.base import Pane
from tui.panes.next_token import NextTokenPane
from tui.screens.arranging import Arranging
from tui.screens.branching import BranchActions
from tui.screens.breakpoint_keys import BreakpointKeys
from tui.screens.glance import Glance
from tui.screens.keys import KeysBar
from tui.screens.measuring import Measuring
from tui.screens.people import People
from tui.screens.status import StatusBar
from tui.source import EventSource
from tui.theming import offered
from tui.usable import COMMANDING, refused
from tui.view import View

if TYPE_CHECKING:  # dialogs are imported when they are opened: a quarter of the start otherwise
    from tui.screens.sessions import Chosen

_MOST_STEPS: Final = 99_999


class MainScreen(BranchActions, BreakpointKeys, Measuring, People, Arranging):
    """Everything of one session at once."""

    BINDINGS = bindings("main")
    SCOPES: ClassVar[list[Scope]] = ["main"]
    """Whose keys work here, the first ones before the others."""
    ALLOW_IN_MAXIMIZED_VIEW = "#status, #keys"
    # Textual declares both as plain lists.
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny-w"), (60, "-small-w"), (100, "-full-w")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-tiny-h"), (16, "-small-h"), (32, "-full-h")]  # noqa: RUF012

    def __init__(self, view: View, *, observe: bool = False) -> None:
        super().__init__()
        self.view = view
        self._observe = view.observing = observe
        self._count = ""
        self.source: EventSource | None = None
        self.feed: Feed | None = None
        self.control: Control | None = None
        self.openings = Openings()

    def compose(self) -> ComposeResult:
        """Status, panes, keys."""
        yield StatusBar(self.view, "status")
        with Container(id="body"):
            for pane_id, pane in PANES.items():
                yield pane(self.view, pane_id)
        yield Glance(self.view, "glance")
        yield KeysBar(self.SCOPES)

    def on_mount(self) -> None:
        """NEXT TOKEN would force on enter: the text has the focus first."""
        width, height = self.app.size
        for size, places in (
            (width, self.HORIZONTAL_BREAKPOINTS),
            (height, self.VERTICAL_BREAKPOINTS),
        ):
            self.add_class(*self._get_breakpoint_classes(size, places))
        self._bring_forward(self._front)
        self.query_one("#sequence").focus()

    # Source -----------------------------------------------------------------------------------

    async def serve(self, source: EventSource) -> None:
        """Show what the source tells, until it ends."""
        self.source = source
        self.view.state = source.state
        self.view.holds = source.holds
        self.view.me = lambda: source.me
        self._observe = self.view.observing = self._observe or source.observes
        self.control = Control(source, self.view, observe=self._observe)
        self.feed = self.make_feed(source, self.control.carry_on)
        self.paint()
        await self.feed.run()

    def make_feed(self, source: EventSource, after: Callable[[], Awaitable[None]]) -> Feed:
        """What keeps the view up to date; `after` follows each fold."""
        return Feed(source, self.view, self.paint, after)

    def paint(self) -> None:
        """Draw what is visible again."""
        if not self.is_mounted:
            return
        for pane in self.query(Pane):
            pane.data_changed()
        self._show_keys()
        self.tell_news()

    @work(group="commands", exit_on_error=False)
    async def _do(self, intent: Coroutine[object, object, object]) -> None:
        try:
            words = await intent
            if isinstance(words, str):
                self.say(words, calm=True)
        except InspectError as error:
            if self.control is not None:
                self.control.forget()
            self.say(error)
        self.paint()

    def _ready(self) -> Control | None:
        if self.control is None:
            self.say("not attached yet")
        return self.control

    def _ready_to(self, what: Literal["send", "act"]) -> Control | None:
        """The control, where what a dialog is to ask for would not only be refused: said before
        anybody fills it in."""
        control = self._ready()
        try:
            if control is not None:
                control.check_link() if what == "send" else control.check_standing()
        except InspectError as error:
            self.say(error)
            return None
        return control

    # Counts -----------------------------------------------------------------------------------

    def take_key(self, event: events.Key) -> None:
        """Digits before an action are its count. The application hands over what no pane took, in
        the order of the keys: an action before may have opened a dialog, whose digits these are."""
        if self.heard_key(event):
            return
        if (action := lone(event.key)) is not None:
            event.stop()
            if action.scope != getattr(self.focused, "SCOPE", None):  # that one heard it itself
                self.action_in_pane(action.scope, action.name)
            return
        char = event.character
        if char is not None and char in "0123456789" and (self._count or char != "0"):
            event.stop()
            event.prevent_default()
            self._set_count((self._count + char)[-5:])

    def _set_count(self, count: str) -> None:
        self._count = count
        self._show_keys()

    def on_screen_suspend(self) -> None:
        """A dialog lies over this one, and names its own keys."""
        self._show_keys()

    def on_screen_resume(self) -> None:
        """Nothing does any more."""
        self._show_keys()

    def _show_keys(self) -> None:
        """The keys of the focused pane first; none that would only be refused, and none at all
        below a dialog: they do nothing there."""
        if not self.is_active:
            for bar in self.query(KeysBar):
                bar.show([])
            return
        focused = self.focused
        scope = focused.SCOPE if isinstance(focused, Pane) else None
        for bar in self.query(KeysBar):  # gone already while the screen is taken down
            bar.show(
                [scope, *self.SCOPES] if scope else self.SCOPES,
                self._count,
                first=("", "") if self.maximized is None else ("main.zoom", "all panes"),
                without=self.without(),
            )

    @property
    def unusable(self) -> frozenset[str]:
        """Actions that this kind of screen refuses, by id."""
        return COMMANDING if self._observe else frozenset()

    def without(self) -> frozenset[str]:
        """Actions that would only be refused now, by id."""
        return refused(self.view)

    def _take_count(self) -> int:
        count = int(self._count or 1)
        self._set_count("")
        return min(count, _MOST_STEPS)

    def action_forget_count(self) -> None:
        """No count, no read beside the candidates, and every pane back in its place."""
        self._set_count("")
        self.view.overlay = None
        self.paint()
        if self.maximized is not None:
            self.minimize()
            self._show_keys()

    # The engine -------------------------------------------------------------------------------

    def action_run_or_pause(self) -> None:
        """Run what stands, pause what runs."""
        self._set_count("")
        if control := self._ready():
            self.view.cursor = None if not self.view.running else self.view.cursor
            self._do(control.run_or_pause())

    def action_step(self) -> None:
        """Behind the head: look on; at the head: commit. A count never crosses from one to the
        other."""
        count = self._take_count()
        if not self.view.at_head:
            self._look(min(self.view.at + count, self.view.head))
        elif control := self._ready():
            self.view.cursor = None
            self._do(self._step(control, count))

    async def _step(self, control: Control, count: int) -> None:
        place = self.view.columns.place
        await control.step(count)
        if place.kind == "ended":
            picked = "s again picks it" if count == 1 else f"then {count - 1} are picked"
            self.say(f"the end is passed: step {place.step} is pending; {picked}", calm=True)

    def action_choose(self) -> None:
        """To the candidates; forcing one takes a second enter, there."""
        if self.view.running:
            self.say("it is running; space pauses it", calm=True)
        elif self.view.forcible:
            self._focus_on("glance" if self.query_one("#glance").display else "next-token")

    @on(NextTokenPane.Forced)
    def _force(self, message: NextTokenPane.Forced) -> None:
        if control := self._ready():
            self._do(control.force(message.token_id))

    def action_interrupt(self) -> None:
        """What ctrl+c means in a debugger."""
        if self.control is None or not (self.view.running or self.view.busy):
            self.say("q leaves; the daemon and the session go on", calm=True)
            return
        self._do(self.control.pause())

    # Looking ----------------------------------------------------------------------------------

    @on(Pane.Looked)
    def _looked(self, message: Pane.Looked) -> None:
        self._look(message.step)

    def _look(self, step: int) -> None:
        self.view.move(step)
        self.paint()
        if self.feed is not None:
            self.feed.changed()

    def action_back(self) -> None:
        """Cursor back; the engine does nothing."""
        self._look(self.view.at - self._take_count())

    def action_cursor_left(self) -> None:
        """Cursor back."""
        self.action_back()

    def action_cursor_right(self) -> None:
        """Cursor on; never commits."""
        self._look(self.view.at + self._take_count())

    def action_first(self) -> None:
        """Cursor to the first step."""
        self._set_count("")
        self._look(0)

    def action_last(self) -> None:
        """Cursor to the head, however far that is; with a count to that step."""
        if not self._count and self.view.behind.shown and self.feed is not None:
            self.feed.jump()
        self._look(self._take_count() if self._count else self.view.head)

    def action_follow(self) -> None:
        """Follow the head, or stand."""
        if self.view.cursor is None:
            self.view.cursor = self.view.at
            self.say(f"standing at step {self.view.at}; f follows again", calm=True)
        else:
            self.view.cursor = None
        self._look(self.view.at) if self.view.cursor is None else self.paint()

    # Other screens ----------------------------------------------------------------------------

    def action_new_prompt(self) -> None:
        """Open a session on what is typed."""
        from tui.screens.prompt import PromptScreen

        if control := self._ready_to("send"):
            screen = PromptScreen(self.openings.next(self.view), control.count_tokens)
            self.app.push_screen(screen, self._opened)

    def _opened(self, command: Open | None) -> None:
        if command is not None:
            self._do(self.open(command))

    async def open(self, command: Open) -> None:
        """Open a session and show it."""
        if self.control is not None and self.feed is not None:
            self.view.opening = True
            self.paint()
            try:
                session = await self.control.open(command)
            finally:
                self.view.opening = False
            self.openings.remember(session, command)
            self.feed.follow(session)

    def action_sessions(self) -> None:
        """Choose another one."""
        from tui.screens.sessions import SessionsScreen

        state = self.view.state
        if state is None:
            self.say("not attached yet")
        else:
            self.app.push_screen(SessionsScreen(state.sessions, self.view.session), self._chose)

    def _chose(self, chosen: "Chosen | None") -> None:
        if chosen is None or self.feed is None or self.control is None:
            return
        if chosen.do == "attach":
            self.feed.follow(chosen.session)
        else:
            self._do(self.control.close(chosen.session))

    def action_copy(self) -> None:
        """The text so far, to the clipboard of the person's terminal."""
        text = self.view.text().decode("utf-8", "replace")
        self.app.copy_to_clipboard(text)
        self.say(f"copied {len(text)} characters", calm=True)

    def action_theme(self) -> None:
        """The next theme."""
        names = offered(self.app.available_themes)
        place = names.index(self.app.theme) if self.app.theme in names else -1
        self.app.theme = names[(place + 1) % len(names)]
        self.say(f"theme {self.app.theme}", calm=True)

    def action_help(self) -> None:
        """Every key."""
        from tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.SCOPES, self.unusable))

    def action_palette(self) -> None:
        """Find an action by name."""
        self.app.action_command_palette()

    def action_leave(self) -> None:
        """At once; the daemon and the session stay."""
        self.app.exit()
