"""Breakpoints: type a condition that stops the session, look at those in force, remove one.

Says what is wrong with a condition in place, with a caret under the fault. What a condition means
is `engine_daemon.conditions`'; the daemon is asked through the control.
"""

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from engine_daemon.conditions.faults import ConditionError
from engine_daemon.errors import InspectError
from tui.control import Control
from tui.keymap import bindings
from tui.screens.dialog import Dialog
from tui.screens.keys import KeysBar
from tui.text import SafeText, show_text
from tui.view import View
from tui.widgets.choices import Choices
from tui.widgets.line import Line
from tui.widgets.typed_ahead import TypedAhead

_HINT = 'entropy>3 · p(eos)>0.5 · token=" Ku" · text~"x" · ms>3x · and or not'
_NONE = Content("No breakpoint yet")
_PERIOD_S = 0.5


class BreakpointsScreen(TypedAhead, Dialog[str | None]):
    """One line to type into, and the list. Gives back what was added, for a message."""

    BINDINGS = bindings("breakpoints")

    def __init__(self, view: View, control: Control) -> None:
        super().__init__()
        self._view = view
        self._control = control
        self._numbers: list[int] = []
        self._rows: list[Content] | None = None
        self._removed: set[int] = set()
        self._looked_at: str | None = None

    def compose(self) -> ComposeResult:
        """The line, what is wrong with it, the list."""
        with Vertical(id="breakpoints", classes="dialog") as box:
            box.border_title = "BREAKPOINTS"
            yield Line(placeholder="stop where …", id="condition", compact=True)
            yield Static(Content(_HINT), id="complaint")
            yield Choices(id="condition-list")
            yield KeysBar(["breakpoints"])

    def on_mount(self) -> None:
        """The line has the focus; the list goes on while one looks."""
        self._list()
        self.query_one(Input).focus()
        self.set_interval(_PERIOD_S, self._list)

    def on_descendant_focus(self) -> None:
        """Other keys work now."""
        self._show_keys()

    def _show_keys(self) -> None:
        """`x` is a letter in the line and removes in the list: named where it does that."""
        in_list = isinstance(self.focused, OptionList)
        without = {"breakpoints.to_list" if in_list else "breakpoints.remove"}
        if not self._numbers:
            without = {"breakpoints.to_list", "breakpoints.remove"}
        self.query_one(KeysBar).show(["breakpoints"], without=frozenset(without))

    def _list(self) -> None:
        columns = self._view.columns
        numbers = [n for n in columns.conditions if n not in self._removed]
        rows = [self._row(number) for number in numbers]
        if rows == self._rows:
            return
        choices = self.query_one(OptionList)
        at = choices.highlighted
        chosen = None if at is None or at >= len(self._numbers) else self._numbers[at]
        self._numbers, self._rows = numbers, rows
        self._show_keys()
        choices.clear_options()
        choices.add_options(rows or [Option(_NONE, disabled=True)])
        choices.highlighted = numbers.index(chosen) if chosen in numbers else 0 if rows else None

    def _row(self, number: int) -> Content:
        columns = self._view.columns
        source = show_text(columns.conditions[number].source)
        hits = sum(fired == number for _, fired in columns.fired)
        note = f"  hit {hits}×" if hits else ""
        if number in columns.disabled:
            note = f"  off: {show_text(columns.disabled[number])}"
        return Content(f"{number:>3}  {source}{note}")

    def _say(self, words: str, *, wrong: bool) -> None:
        lines = [show_text(line) for line in words.split("\n")]
        complaint = self.query_one("#complaint", Static)
        complaint.update(Content("\n".join(lines)))
        complaint.set_class(wrong, "wrong")

    def _wrong(self, error: InspectError) -> None:
        """The source with its caret first: it stands right under the line."""
        self._say("\n".join(filter(None, (error.picture, error.message, error.hint))), wrong=True)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Another text: what was wrong with the last one is of no use. (The change of a text that
        was entered at once is told after it was looked at.)"""
        if event.value != self._looked_at:
            self._say(_HINT, wrong=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The line takes enter itself, in the order of what was typed."""
        event.stop()
        self.action_add()

    def action_add(self) -> None:
        """Check here, then ask the daemon."""
        source = self._looked_at = self.query_one(Input).value
        try:
            from engine_daemon.conditions.parser import parse

            parse(source)
        except ConditionError as error:
            self._wrong(error)
            return
        self._add(source)

    @work(exclusive=True, group="breakpoints", exit_on_error=False)
    async def _add(self, source: str) -> None:
        try:
            await self._control.add_condition(source)
        except InspectError as error:
            self._wrong(error)
            return
        self.dismiss(SafeText(f"stops at {show_text(source)}"))

    def action_to_list(self) -> None:
        """From the line to the list, and back."""
        self.focus_next()

    def action_remove(self) -> None:
        """Forget the highlighted one."""
        index = self.query_one(OptionList).highlighted
        if index is not None and index < len(self._numbers):
            self._remove(self._numbers[index])

    @work(exclusive=True, group="breakpoints", exit_on_error=False)
    async def _remove(self, number: int) -> None:
        try:
            await self._control.remove_condition(number)
        except InspectError as error:
            self._wrong(error)
            return
        self._removed.add(number)
        self._list()

    def action_cancel(self) -> None:
        """Back to the main screen."""
        self.dismiss(None)
