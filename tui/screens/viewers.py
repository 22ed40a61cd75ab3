"""Who is attached to the daemon, which of them this screen is, and who did what to this session.

Reads the view; changes nothing.
"""

from collections import Counter
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
_LEAST_ACTS: Final = 3
_AROUND: Final = 11
"""Rows of the dialog that hold neither a viewer nor a command, and one for "more"."""
_WHY_CELLS: Final = 60
"""Of an error, that a command ended in."""
_PERIOD_S: Final = 0.5
_WHO_CELLS: Final = 28
_ID_DIGITS: Final = 4
"""Of the id of a viewer, where a name alone does not tell which it is."""
_ROW: Final = "{mark} {who}{role:<11}{client:<12}{lag:>5}  {sessions}"
_WORDS: Final = (
    "● has the lease of the session on screen: it alone commands it",
    "ROLE  a controller may take the lease, an observer only watches",
    "LAG   events of its sessions that it does not have yet",
)


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
        rows = self.app.size.height - _AROUND
        most = min(_MOST, max(rows - _LEAST_ACTS, 1))
        twins = {who for who, many in Counter(one.who for one in people).items() if many > 1}
        lines = [self._head(), *(self._row(one, twins) for one in people[:most])]
        if len(people) > most:
            lines.append(SafeText(f"… and {len(people) - most} more"))
        lines += [SafeText(""), *map(SafeText, _WORDS)]
        room = min(_ACTS, max(rows - min(len(people), most + 1), _LEAST_ACTS))
        acts = list(self._view.columns.acts)[-room:][::-1]
        if acts:
            lines += [SafeText(""), SafeText("  STEP  WHO DID WHAT")]
        lines += [SafeText(f"{act.step:>6}  {act_text(act)}{self._end(act)}") for act in acts]
        return SafeText("\n".join(lines))

    def _end(self, act: Commanded | Noted) -> SafeText:
        """What is to be said of a command that ended in an error."""
        why = self._view.columns.failed.get(act.t_ns)
        return SafeText("" if why is None else f" ✗ {clip(show_text(why), _WHY_CELLS)}")

    def _head(self) -> SafeText:
        who = fit(SafeText("WHO"), _WHO_CELLS)
        return SafeText(
            _ROW.format(
                mark=" ", who=who, role="ROLE", client="WITH", lag="LAG", sessions="SESSION"
            )
        )

    def _row(self, viewer: ViewerInfo, twins: set[str]) -> SafeText:
        """`●` has the lease of the session on screen. Of a name that several have each gets the
        beginning of its id beside it."""
        holds = self._view.session in viewer.holds
        which = f" #{viewer.viewer.hex()[:_ID_DIGITS]}" if viewer.who in twins else ""
        which += "" if viewer.uid is None else f" ({viewer.uid})"
        name = clip(who_text(viewer.who), _WHO_CELLS - 1 - len(which))
        here = viewer.viewer == self._view.me()
        return SafeText(
            _ROW.format(
                mark="●" if holds else " ",
                who=fit(SafeText(name + which), _WHO_CELLS),
                role=viewer.role,
                client="this screen" if here else clip(show_text(viewer.client.split(" ")[0]), 11),
                lag=viewer.lag,
                sessions=", ".join(map(show_text, viewer.sessions)) or "–",
            )
        )

    def action_cancel(self) -> None:
        """Back to the main screen."""
        self.dismiss(None)
