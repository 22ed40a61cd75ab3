"""The notes of a session: one a line; choosing one goes to its step.

Knows notes; the main screen moves the cursor.
"""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from engine_daemon.protocol.events import Noted
from tui.acts import who_text
from tui.keymap import bindings
from tui.screens.dialog import Dialog
from tui.screens.keys import KeysBar
from tui.text import SafeText, fit, show_text
from tui.widgets.choices import Choices


class NotesScreen(Dialog[Noted | None]):
    """By step; gives the chosen one back."""

    BINDINGS = bindings("notes")

    def __init__(self, notes: Sequence[Noted], branch: int) -> None:
        super().__init__()
        self._notes = sorted(notes, key=lambda note: (note.step, note.t_ns))
        self._branch = branch

    def compose(self) -> ComposeResult:
        """The list and the keys."""
        with Vertical(id="notes", classes="dialog") as box:
            box.border_title = "NOTES"
            rows = (Option(Content(self.row(note))) for note in self._notes)
            yield Choices(*rows, id="note-list")
            yield KeysBar(["notes"])

    def on_mount(self) -> None:
        """The first one is highlighted."""
        choices = self.query_one(OptionList)
        choices.focus()
        choices.highlighted = 0

    def row(self, note: Noted) -> SafeText:
        """Step, branch where it is another one, who, what."""
        where = f"step {note.step}"
        if note.branch != self._branch:
            where += f" of branch {note.branch}"
        return SafeText(
            f"{fit(SafeText(where), 20)}{fit(who_text(note.who), 16)}{show_text(note.text)}"
        )

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter or a click."""
        event.stop()
        self.action_jump()

    def action_jump(self) -> None:
        """Take the highlighted one."""
        index = self.query_one(OptionList).highlighted
        self.dismiss(None if index is None else self._notes[index])

    def action_cancel(self) -> None:
        """Stay."""
        self.dismiss(None)
