"""Who is attached to the daemon, and who did what to this session.

Reads the view; changes nothing.
"""

from typing import Final

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from engine_daemon.protocol.events import Commanded, Noted
from engine_daemon.protocol.state import ViewerInfo
from tui.acts import act_text, who_text
from tui.keymap import bindings
from tui.screens.dialog import Dialog
from tui.screens.keys import KeysBar
from tui.text import SafeText, clip, fit, show_text
from tui.view import View

_ACTS: Final = 10
"""Commands shown, the newest first."""
_MOST: Final = 12
"""Viewers shown."""
_WHY_CELLS: Final = 60
"""Of an error, that a command ended in."""
_PERIOD_S: Final = 0.5


class ViewersScreen(Dialog[None]):
    """One viewer a line, then the last commands."""

    BINDINGS = bindings("viewers")

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view
        self._shown = ""

    def compose(self) -> ComposeResult:
        """Two lists and the keys."""
        with Vertical(id="viewers", classes="dialog") as box:
            box.border_title = "VIEWERS"
            yield Static(Content(self.words()), id="viewer-list")
            yield KeysBar(["viewers"])

    def on_mount(self) -> None:
        """It goes on while one looks."""
        self.set_interval(_PERIOD_S, self._again)

    def _again(self) -> None:
        words = self.words()
        if words != self._shown:
            self._shown = words
            self.query_one("#viewer-list", Static).update(Content(words))

    def words(self) -> SafeText:
        """Everything that is shown."""
        state = self._view.state
        people = [] if state is None else state.viewers
        lines = [self._head(), *map(self._row, people[:_MOST])]
        if len(people) > _MOST:
            lines.append(SafeText(f"… and {len(people) - _MOST} more"))
        acts = list(self._view.columns.acts)[-_ACTS:][::-1]
        if acts:
            lines += [SafeText(""), SafeText("  STEP  WHO DID WHAT")]
        lines += [SafeText(f"{act.step:>6}  {act_text(act)}{self._end(act)}") for act in acts]
        return SafeText("\n".join(lines))

    def _end(self, act: Commanded | Noted) -> SafeText:
        """What is to be said of a command that ended in an error."""
        why = self._view.columns.failed.get(act.t_ns)
        return SafeText("" if why is None else f" ✗ {clip(show_text(why), _WHY_CELLS)}")

    def _head(self) -> SafeText:
        return SafeText(f"  {'WHO':<25}{'ROLE':<12}{'WITH':<9}{'LAG':>6}  SESSION")

    def _row(self, viewer: ViewerInfo) -> SafeText:
        """`●` has the lease of the session on screen."""
        mark = "●" if self._view.session in viewer.holds else " "
        name = who_text(viewer.who) + ("" if viewer.uid is None else f" ({viewer.uid})")
        client = show_text(viewer.client.split(" ")[0])
        sessions = ", ".join(map(show_text, viewer.sessions)) or "–"
        return SafeText(
            f"{mark} {fit(SafeText(name), 25)}{fit(SafeText(viewer.role), 12)}"
            f"{fit(client, 9)}{viewer.lag:>6}  {sessions}"
        )

    def action_cancel(self) -> None:
        """Back to the main screen."""
        self.dismiss(None)
