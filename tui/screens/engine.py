"""A look into the engine: what is the matter with it, where its ranks are, and ending it.

Asks and ends by what it is handed; knows the view.
"""

from collections.abc import Awaitable, Callable

from textual import events, work
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from engine_daemon.errors import InspectError
from engine_daemon.protocol.state import EngineState
from tui.keymap import bindings
from tui.screens.dialog import Dialog
from tui.screens.keys import KeysBar
from tui.text import SafeText, show_text
from tui.view import View

_PERIOD_S = 0.5
_SURE = SafeText("end the engine? Running sessions are paused. y ends it, other keys do not")


class EngineScreen(Dialog[None]):
    """State and processes, then the stacks of each rank.

    Args:
        stacks: asks for them; InspectError when they cannot be had.
        end: ends the engine, which starts again. None: this viewer may not.
    """

    BINDINGS = bindings("engine")

    def __init__(
        self,
        view: View,
        stacks: Callable[[], Awaitable[str]],
        end: Callable[[], Awaitable[object]] | None,
    ) -> None:
        super().__init__()
        self._view = view
        self._ask = stacks
        self._end = end
        self._sure = False
        self._shown = ""
        self._condition = _condition(view.engine)

    def compose(self) -> ComposeResult:
        """A few lines, a long text, the keys."""
        with Vertical(id="engine", classes="dialog") as box:
            box.border_title = "ENGINE"
            yield Static(Content(self.words()), id="engine-state")
            with VerticalScroll(id="engine-stacks"):
                yield Static(Content("asking for the stacks …"), id="engine-text")
            yield KeysBar(["engine"])

    def on_mount(self) -> None:
        """It goes on while one looks."""
        self.query_one("#engine-stacks").focus()
        self.set_interval(_PERIOD_S, self._again)
        self._fetch()

    def _again(self) -> None:
        words = self.words()
        if words != self._shown:
            self._shown = words
            self.query_one("#engine-state", Static).update(Content(words))
        condition = _condition(self._view.engine)
        if condition != self._condition:  # what the stacks say of it is of before
            self._condition = condition
            self.action_look_again()

    def words(self) -> SafeText:
        """What is known of it, in a few lines."""
        engine = self._view.engine
        if engine is None:
            return SafeText("not attached yet")
        lines = [f"{engine.word}, start {engine.engine}, {show_text(engine.model_name)}"]
        if engine.message:
            lines.append(show_text(engine.message))
        lines.append(_processes(engine))
        return SafeText("\n".join(lines))

    @work(exclusive=True, group="stacks", exit_on_error=False)
    async def _fetch(self) -> None:
        try:
            text = await self._ask()
        except InspectError as error:
            text = error.lines()
        shown = "\n".join(show_text(line) for line in text.splitlines())
        for box in self.query("#engine-text").results(Static):  # gone when it was left meanwhile
            box.update(Content(shown))

    @work(group="end", exit_on_error=False)
    async def _end_it(self, end: Callable[[], Awaitable[object]]) -> None:
        try:
            await end()
        except InspectError as error:
            self._say(SafeText(show_text(error.message)))
        else:
            self.dismiss(None)

    def _say(self, words: SafeText) -> None:
        for bar in self.query(KeysBar):
            bar.tell(words)

    def on_key(self, event: events.Key) -> None:
        """What was said goes with the next key; after the question that key is the answer."""
        self._say(SafeText(""))
        if not self._sure:
            return
        self._sure = False
        event.stop()
        event.prevent_default()
        if event.character == "y" and self._end is not None:
            self._end_it(self._end)
        else:
            self._say(SafeText("no: the engine goes on"))

    def action_look_again(self) -> None:
        """The stacks as they are now."""
        self.query_one("#engine-text", Static).update(Content("asking for the stacks …"))
        self._fetch()

    def action_end_engine(self) -> None:
        """Asks once."""
        if self._end is None:
            self._say(SafeText("this screen only observes"))
        else:
            self._sure = True
            self._say(_SURE)

    def action_cancel(self) -> None:
        """Back to the main screen."""
        self.dismiss(None)


def _condition(engine: EngineState | None) -> object:
    """Changes when something else is the matter with it, not with each second that this lasts."""
    if engine is None:
        return None
    stuck = engine.details.stuck
    trouble = None if stuck is None else (stuck.why, tuple(stuck.ranks), stuck.phase)
    return engine.word, engine.engine, trouble


def _processes(engine: EngineState) -> SafeText:
    pids = engine.details.pids
    if not pids:
        return SafeText("no process")
    if len(pids) == 1:
        return SafeText(f"process {pids[0]}")
    return SafeText("ranks " + ", ".join(f"{rank}: {pid}" for rank, pid in enumerate(pids)))
