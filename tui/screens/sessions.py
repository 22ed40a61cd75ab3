"""Sessions: choose the one to look at, or close one.

Knows what the daemon says of its sessions; the main screen does what was chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from engine_daemon.protocol.state import SessionInfo
from tui.keymap import bindings
from tui.screens.dialog import Dialog
from tui.screens.keys import KeysBar
from tui.text import SafeText, clip, fit, show_text


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
                yield OptionList(*map(self._option, self._sessions), id="session-list")
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

    def _option(self, info: SessionInfo) -> Option:
        place = info.place
        where = f"step {place.step}" + (f" ({show_text(place.reason)})" if place.reason else "")
        title = clip(show_text(info.title), 40) if info.title else SafeText("–")
        mark = "●" if info.session == self._current else " "
        gone = "" if info.resident else "not in memory"
        row = (
            f"{mark} {show_text(info.session)}  {fit(SafeText(info.status), 8)}"
            f"{fit(SafeText(where), 16)}{fit(title, 40)} {gone}"
        )
        return Option(Content(row), id=f"s-{info.session}")

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
