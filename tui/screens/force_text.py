"""Type a text that is appended token by token, each a forced step.

Gives the text back; whoever asked has it tokenised.
"""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static

from tui.keymap import bindings
from tui.screens.dialog import Dialog
from tui.screens.keys import KeysBar
from tui.widgets.line import Line
from tui.widgets.typed_ahead import TypedAhead


class ForceTextScreen(TypedAhead, Dialog[str | None]):
    """One line, taken as it is, spaces included."""

    BINDINGS = bindings("text")

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    def compose(self) -> ComposeResult:
        """The line and the keys."""
        with Vertical(id="force-text", classes="dialog") as box:
            box.border_title = "FORCE TEXT"
            yield Line(id="text", compact=True)
            yield Static(Content(f"Appended {self._where}. A leading space counts."))
            yield KeysBar(["text"])

    def on_mount(self) -> None:
        """Type at once."""
        self.query_one(Input).focus()

    def on_input_submitted(self) -> None:
        """Enter, after all that was typed before it."""
        self.action_append()

    def action_append(self) -> None:
        """Take the text."""
        self.dismiss(self.query_one(Input).value or None)

    def action_cancel(self) -> None:
        """Append nothing."""
        self.dismiss(None)
