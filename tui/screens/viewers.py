"""Who is attached to the daemon, which of them this screen is, and who did what to this session.

Reads the view; changes nothing.
"""

from collections.abc import Sequence
from typing import Final

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from engine_daemon.protocol.events import Commanded, Noted
from engine_daemon.protocol.state import ViewerInfo
from tui.acts import act_text, who_text
from tui.keymap import bindings
from tui.naming import which
from tui.screens.dialog import Dialog
from tui.screens.keys import KeysBar
from tui.text import SafeText, clip, fit, show_text
from tui.view import View

_ACTS: Final = 10
"""Commands shown, the newest first."""
_LEAST_ACTS: Final = 3
_AROUND: Final = 11
"""Rows of the dialog that hold neither a viewer nor a command, and one for "more"."""
_WHY_CELLS: Final = 60
"""Of an error, that a command ended in."""
_PERIOD_S: Final = 0.5
_WHO_CELLS: Final = 28
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
        self._first = 0

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

    def _most(self) -> int:
        """Viewers that there is room for."""
        return max(self.app.size.height - _AROUND - _LEAST_ACTS, 1)

    def _scroll(self, viewers: int) -> None:
        self._first = max(self._first + viewers, 0)
        self._again()

    def action_up(self) -> None:
        """One viewer further up."""
        self._scroll(-1)

    def action_down(self) -> None:
        """One viewer further down."""
        self._scroll(1)

    def action_page_up(self) -> None:
        """As many up as are shown."""
        self._scroll(-self._most())

    def action_page_down(self) -> None:
        """As many down as are shown."""
        self._scroll(self._most())

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        """Three up."""
        self._scroll(-3)

    def on_mouse_scroll_down(self, _event: events.MouseScrollDown) -> None:
        """Three down."""
        self._scroll(3)

    def words(self) -> SafeText:
        """Everything that is shown."""
        state = self._view.state
        people = [] if state is None else state.viewers
        rows = self.app.size.height - _AROUND
        most = self._most()
        self._first = max(min(self._first, len(people) - most), 0)
        shown = people[self._first : self._first + most]
        lines = [self._head(), *(self._row(one, people) for one in shown)]
        if len(people) > most:
            last = self._first + len(shown)
            lines.append(SafeText(f"… {self._first + 1}–{last} of {len(people)} · ↑ ↓ PgUp PgDn"))
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

    def _row(self, viewer: ViewerInfo, people: Sequence[ViewerInfo]) -> SafeText:
        """`●` has the lease of the session on screen. Of a name that several have each gets the
        beginning of its id beside it."""
        holds = self._view.session in viewer.holds
        beside = which(viewer, people)
        beside += "" if viewer.uid is None else f" ({viewer.uid})"
        name = clip(who_text(viewer.who), _WHO_CELLS - 1 - len(beside))
        here = viewer.viewer == self._view.me()
        return SafeText(
            _ROW.format(
                mark="●" if holds else " ",
                who=fit(SafeText(name + beside), _WHO_CELLS),
                role=viewer.role,
                client="this screen" if here else clip(show_text(viewer.client.split(" ")[0]), 11),
                lag=viewer.lag,
                sessions=", ".join(map(show_text, viewer.sessions)) or "–",
            )
        )

    def action_cancel(self) -> None:
        """Back to the main screen."""
        self.dismiss(None)
