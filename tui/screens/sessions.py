"""Sessions: choose the one to look at, or close one.

Knows what the daemon says of its sessions; the main screen does what was chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from engine_daemon.protocol.state import SessionInfo
from tui.keymap import bindings
from tui.screens.dialog import Dialog
from tui.screens.keys import KeysBar
from tui.text import DASH, SafeText, clip, fit, show_text, width
from tui.widgets.choices import Choices

_NAME: Final = 12
_WHERE: Final = 24
_TITLE: Final = 60
"""Cells that each may take at most."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What to do with which session."""

    do: Literal["attach", "close"]
    session: str


class SessionsScreen(Dialog[Chosen | None]):
    """One session a line, the newest first."""

    BINDINGS = bindings("sessions")

    def __init__(self, sessions: Sequence[SessionInfo], current: str | None) -> None:
        super().__init__()
        self._sessions = sorted(sessions, key=lambda s: s.created_ns, reverse=True)
        self._current = current

    def compose(self) -> ComposeResult:
        """The list, or the word that there is none."""
        with Vertical(id="sessions", classes="dialog") as box:
            box.border_title = "SESSIONS"
            if self._sessions:
                yield Choices(*self._options(), id="session-list")
            else:
                yield Static(Content("No open session. ctrl+n opens one."), id="complaint")
            yield KeysBar(["sessions"])

    def on_mount(self) -> None:
        """The current one is highlighted."""
        names = [s.session for s in self._sessions]
        if names:
            choices = self.query_one(OptionList)
            choices.focus()
            choices.highlighted = names.index(self._current) if self._current in names else 0

    def _options(self) -> list[Option]:
        """Columns as wide as they need, a gap between; the title last: it is cut when it is narrow,
        what is before it never."""
        table = [self._cells(info) for info in self._sessions]
        widths = [max(map(width, column)) for column in zip(*table, strict=True)]
        return [
            Option(Content(self._row(info, cells, widths)), id=f"s-{info.session}")
            for info, cells in zip(self._sessions, table, strict=True)
        ]

    def _row(self, info: SessionInfo, cells: list[SafeText], widths: list[int]) -> str:
        mark = "●" if info.session == self._current else " "
        shown = (fit(cell, size) for cell, size in zip(cells, widths, strict=True) if size)
        title = clip(show_text(info.title), _TITLE) if info.title else DASH
        return f"{mark} {'  '.join(shown)}  {title}"

    def _cells(self, info: SessionInfo) -> list[SafeText]:
        place = info.place
        where = f"step {place.step}" + (f" ({place.reason})" if place.reason else "")
        return [
            clip(show_text(info.session), _NAME),
            SafeText(info.status),
            clip(show_text(where), _WHERE),
            SafeText("" if info.resident else "not in memory"),
        ]

    def _highlighted(self) -> str | None:
        if not self._sessions:
            return None
        index = self.query_one(OptionList).highlighted
        return None if index is None else self._sessions[index].session

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter or a click."""
        event.stop()
        self.action_attach()

    def action_attach(self) -> None:
        """Show the highlighted one."""
        session = self._highlighted()
        self.dismiss(None if session is None else Chosen("attach", session))

    def action_close_session(self) -> None:
        """Close the highlighted one."""
        session = self._highlighted()
        if session is not None:
            self.dismiss(Chosen("close", session))

    def action_cancel(self) -> None:
        """Leave as it was."""
        self.dismiss(None)
