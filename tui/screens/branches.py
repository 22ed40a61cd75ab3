"""Branches: the table of them, and which one to stand on.

Knows lines of the table; the main screen does what was chosen.
"""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from engine_daemon.recording.paths import BranchInfo
from tui.keymap import bindings
from tui.screens.dialog import Dialog
from tui.screens.keys import KeysBar
from tui.text import SafeText, fit, token


class BranchesScreen(Dialog[int | None]):
    """One branch a line; gives the chosen one back."""

    BINDINGS = bindings("branches")

    def __init__(self, branches: Sequence[BranchInfo], current: int) -> None:
        super().__init__()
        self._branches = branches
        self._current = current

    def compose(self) -> ComposeResult:
        """The table."""
        with Vertical(id="branches", classes="dialog") as box:
            box.border_title = "BRANCHES"
            yield OptionList(*(Option(Content(self.row(one))) for one in self._branches))
            yield KeysBar(["branches"])

    def on_mount(self) -> None:
        """The current one is highlighted."""
        choices = self.query_one(OptionList)
        choices.focus()
        choices.highlighted = [one.id for one in self._branches].index(self._current)

    def row(self, one: BranchInfo) -> SafeText:
        """Number, where it leaves, how long it is, how it begins."""
        mark = "●" if one.id == self._current else " "
        leaves = "the prompt" if one.parent is None else f"leaves {one.parent} at step {one.step}"
        begins = "" if one.how is None else f"{one.how} {token(one.piece)}"
        steps = SafeText(f"{one.length} step{'s' if one.length != 1 else ''}")
        return SafeText(f"{mark} {one.id:>3}  {fit(SafeText(leaves), 26)}{fit(steps, 14)}{begins}")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter or a click."""
        event.stop()
        self.action_stand()

    def action_stand(self) -> None:
        """Stand on the highlighted one."""
        index = self.query_one(OptionList).highlighted
        self.dismiss(None if index is None else self._branches[index].id)

    def action_cancel(self) -> None:
        """Stay."""
        self.dismiss(None)
