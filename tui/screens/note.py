"""Write a note at a step: one line.

Gives the text back; whoever asked sends it.
"""

from typing import Final

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static

from tui.keymap import bindings
from tui.screens.dialog import Dialog
from tui.screens.keys import KeysBar
from tui.widgets.line import Line
from tui.widgets.typed_ahead import TypedAhead

_MOST: Final = 500


class NoteScreen(TypedAhead, Dialog[str | None]):
    """One line for everybody who looks at this session."""

    BINDINGS = bindings("note")

    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step

    def compose(self) -> ComposeResult:
        """The line and the keys."""
        with Vertical(id="note", classes="dialog") as box:
            box.border_title = "NOTE"
            yield Line(id="note-text", max_length=_MOST, compact=True)
            words = f"At step {self._step}; kept in the recording. ' lists all."
            yield Static(Content(words), id="complaint")
            yield KeysBar(["note"])

    def on_mount(self) -> None:
        """Type at once."""
        self.query_one(Input).focus()

    def on_line_clipped(self) -> None:
        """Not all that was pasted is there."""
        told = f"A note has {_MOST} characters at most: the rest is left out."
        self.query_one("#complaint", Static).update(Content(told))

    def on_input_submitted(self) -> None:
        """Enter, after all that was typed before it."""
        self.action_write()

    def action_write(self) -> None:
        """Take the text."""
        self.dismiss(self.query_one(Input).value.strip() or None)

    def action_cancel(self) -> None:
        """Write nothing."""
        self.dismiss(None)
