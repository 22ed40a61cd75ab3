"""Branches: what each says and how probable that was, beside the one that is stood on.

Reads the columns; the main screen does what was chosen.
"""

from typing import Final

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from engine_daemon.recording.columns import Columns
from engine_daemon.recording.paths import BranchInfo
from tui.comparing import Difference, difference, forced, own
from tui.keymap import bindings
from tui.screens.dialog import Dialog
from tui.screens.keys import KeysBar
from tui.text import SafeText, clip, fit, tail, width, wrap
from tui.widgets.choices import Choices

_ROWS: Final = 10
_GAP: Final = " │ "


class BranchesScreen(Dialog[int | None]):
    """Two lines a branch, and the highlighted one beside another; gives the chosen one back."""

    BINDINGS = bindings("branches")

    def __init__(self, columns: Columns, alone: SafeText) -> None:
        """`alone`: what is said where there is one branch only."""
        super().__init__()
        self._columns = columns
        self._alone = alone
        self._branches = columns.branches()
        self._current = columns.branch

    def compose(self) -> ComposeResult:
        """The table, the comparison."""
        with Vertical(id="branches", classes="dialog") as box:
            box.border_title = "BRANCHES"
            yield Choices(*(Option(Content(self.row(one))) for one in self._branches))
            yield Beside(self._alone, id="beside")
            yield KeysBar(["branches"])

    def on_mount(self) -> None:
        """The current one is highlighted."""
        choices = self.query_one(OptionList)
        choices.focus()
        choices.highlighted = [one.id for one in self._branches].index(self._current)

    def row(self, one: BranchInfo) -> SafeText:
        """Number, where it leaves, how long it is, how probable; below it what it says."""
        mark = "●" if one.id == self._current else " "
        leaves = "the prompt" if one.parent is None else f"leaves {one.parent} at step {one.step}"
        steps = SafeText(f"{one.length} step{'s' if one.length != 1 else ''}")
        stretch = own(self._columns, one.id)
        first = f"{mark} {one.id:>3}  {fit(SafeText(leaves), 23)}{fit(steps, 12)}{stretch.words}"
        how = f"{one.how}: " if one.parent is not None and one.how is not None else ""
        if how and (many := forced(self._columns, one.id)):  # what follows them was picked
            how = f"{many} token{'s' * (many != 1)} forced: "
        return SafeText(f"{first}\n       {how}{stretch.text.lstrip()}")

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Compare that one."""
        event.stop()
        other = self._other(self._branches[event.option_index])
        beside = self.query_one(Beside)
        if other is None:
            beside.show(None, 0, 0)
        else:
            chosen = self._branches[event.option_index].id
            pair = (other, chosen) if other == self._current else (chosen, other)
            beside.show(difference(self._columns, *pair), *pair)

    def _other(self, one: BranchInfo) -> int | None:
        """What it is compared with: the one stood on; that one with where it comes from."""
        if one.id != self._current:
            return self._current
        if one.parent is not None:
            return one.parent
        return next((other.id for other in self._branches if other.id != one.id), None)

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


class Beside(Widget):
    """Two branches from the first token in which they differ."""

    def __init__(self, alone: SafeText, *, id: str) -> None:  # noqa: A002  Textual's name
        super().__init__(id=id)
        self._alone = alone
        self._shown: tuple[Difference | None, int, int] = (None, 0, 0)

    def show(self, found: Difference | None, first: int, second: int) -> None:
        """These two; None: there is one only."""
        self._shown = (found, first, second)
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as there are in this width."""
        return len(self.lines(width))

    def render(self) -> Content:
        """The lines in the width that it has."""
        return Content("\n".join(self.lines(self.content_size.width)))

    def lines(self, columns: int, rows: int = _ROWS) -> list[SafeText]:
        """Where they part, then both texts side by side, then what both are worth."""
        found, *names = self._shown
        if found is None:
            return wrap(self._alone, columns, rows) if columns > 0 else []
        cells = (columns - len(_GAP)) // 2
        at = f"They first differ at step {found.at}, after "
        head = clip(SafeText(at + tail(found.before, max(columns - width(at), 1))), columns)
        if not found.differ:
            head = clip(
                SafeText(f"One is the beginning of the other: {found.at} steps alike"), columns
            )
        heads = [
            SafeText(f"branch {name}:  {words}")
            for name, words in zip(names, found.tokens, strict=True)
        ]
        texts = [wrap(one, cells, rows - 3) for one in found.texts()]
        deep = max(map(len, texts))
        texts = [[*one, *[SafeText("")] * (deep - len(one))] for one in texts]
        both = zip(*texts, strict=True)
        worth = [
            SafeText(
                f"{one.steps} step{'s' * (one.steps != 1)}: {one.words}" if found.differ else ""
            )
            for one in found.shared
        ]
        pairs = [heads, *both, worth]
        return [head, *(SafeText(_GAP.join(fit(part, cells) for part in pair)) for pair in pairs)]
