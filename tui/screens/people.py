"""What the main screen does about other viewers: the lease, who is there, notes.

A part of the main screen in a file of its own; what an intent sends is in `control`.
"""

from collections.abc import Callable
from typing import Any, Final

from textual import events

from engine_daemon.errors import InspectError
from engine_daemon.protocol.events import Noted, Stopped
from engine_daemon.recording.known import FAULTS
from tui.acts import who_text
from tui.control import Control
from tui.naming import holder_text
from tui.screens.keys import KeysBar
from tui.screens.telling import Telling
from tui.text import SafeText, clip, show_text
from tui.view import View

_NOTE_CELLS: Final = 60
_BACK: Final = "engine back"
_LINK_BACK: Final = {
    "not_sent": "the link is back; press again what you want",
    "link_lost": "the link is back; what was not confirmed is done if it is on the screen",
}
"""By the code of what the lost link did to a key."""
_NO: Final = SafeText("no: the lease stays where it is")


class People(Telling):
    """Actions of the main screen, which has the rest of these."""

    view: View
    control: Control | None
    _do: Any
    """Sends an intent in a worker of the screen."""
    _unless: Callable[[], object] | None = None
    """What the next `y` does; any other key forgets it."""
    _told_stop: Stopped | None = None
    """The stop that was last looked at."""
    _told_loss: SafeText = SafeText("")
    """What was last said of a lost engine: it goes, or gets another word, once that is not so."""

    _told_unsent: SafeText = SafeText("")
    """What was last said of a key that the lost link had no way for: it goes with the link back."""
    _back = ""
    """What is said then."""
    _gone = False
    """The loss was seen here, too: the source may know of it first."""

    def say(self, error: InspectError | str, *, calm: bool = False) -> None:
        """What came of a key; what is so only without a link is not said on once it is back."""
        super().say(self._telling_which(error), calm=calm)
        self._back = "" if isinstance(error, str) else _LINK_BACK.get(error.code, "")
        if self._back:
            self._gone = not self.view.link
            self._told_unsent = next((bar.told for bar in self.query(KeysBar)), SafeText(""))

    def _telling_which(self, error: InspectError | str) -> InspectError | str:
        """A refusal names who has the lease; the viewers here tell which of that name it is."""
        info = self.view.info
        if isinstance(error, str) or error.code != "no_lease" or info is None or not info.holder:
            return error
        name = holder_text(self.view, info.holder)
        return InspectError(error.message.replace(info.holder, name), code=error.code)

    def _mend_unsent(self) -> None:
        self._gone = self._gone or not self.view.link
        if not (self._told_unsent and self._gone and self.view.link):
            return
        still = any(bar.told == self._told_unsent for bar in self.query(KeysBar))
        self._told_unsent, back = SafeText(""), self._back
        if still:
            self.say(back, calm=True)

    def _ready(self) -> Control | None:
        raise NotImplementedError

    def _look(self, step: int) -> None:
        raise NotImplementedError

    def tell_news(self) -> None:
        """What came from others: the lease is lost, or the recording gone. And why the session
        stands, if for an error."""
        self._tell_stop()
        self._mend_loss()
        self._mend_unsent()
        while self.view.taken_by:
            by = self.view.taken_by.pop(0)
            if self.control is not None:
                self.control.forget()
            taker = holder_text(self.view, by)
            self.tell(SafeText(f"{taker} took the lease of this session · L takes it back"))
        while self.view.removed_by:
            who = who_text(self.view.removed_by.pop(0)) or "somebody"
            self.tell(SafeText(f"{who} removed this recording · what is shown here is all of it"))

    def _tell_stop(self) -> None:
        """The reason an error gives, each time one stops the session."""
        stop = self.view.columns.stop
        if stop is None or stop is self._told_stop or self.view.replay is not None:
            return
        self._told_stop = stop
        if stop.reason not in FAULTS or not stop.message:
            return
        words = SafeText(f"{stop.reason.replace('_', ' ')}: {show_text(stop.message)}")
        self._told_loss = words if stop.reason == "engine_lost" else SafeText("")
        self.tell(words)

    def _mend_loss(self) -> None:
        """A loss that is over is not said on: the engine is back, or the session went on."""
        for bar in self.query(KeysBar):
            if not self._told_loss or bar.told != self._told_loss:
                self._told_loss = SafeText("")
            elif self.view.columns.stop is not self._told_stop:
                self._told_loss = SafeText("")
                bar.tell(SafeText(""))
            elif self.view.engine_back:
                goes_on = "" if self.view.observing else "; space goes on"
                self._told_loss = SafeText(f"{_BACK}{goes_on}")
                bar.tell(self._told_loss)

    def tell_dropped(self, stood_s: float) -> None:
        """Keys came that are not acted on."""
        words = f"not sent: this screen stood still for {stood_s:.0f} s; press again what you want"
        self.tell(SafeText(words))

    def heard_key(self, event: events.Key) -> bool:
        """A key while something is said or asked in the last line; True when it is used up."""
        self.tell(SafeText(""))
        act, self._unless = self._unless, None
        if act is None:
            return False
        event.stop()
        event.prevent_default()
        if event.character == "y":
            act()
        else:
            self.tell(_NO)
        return True

    # The lease ----------------------------------------------------------------------------------

    def action_lease(self) -> None:
        """Have it, give it back, or ask whether to take it."""
        control = self._ready()
        if control is None:
            return
        if self.view.observing:
            self.tell(SafeText("this screen only observes"))
            return
        match self.view.lease:
            case "ours":
                self._do(control.lease("release", "the lease is given back; a step takes it again"))
            case "other":
                info = self.view.info
                holder = holder_text(self.view, (info and info.holder) or "")
                self._unless = lambda: self._do(control.lease("take", "the lease is yours"))
                self.tell(SafeText(f"take the lease from {holder}? y takes it, other keys do not"))
            case _:
                self._do(control.lease("acquire", "the lease is yours"))

    def action_viewers(self) -> None:
        """Who is attached, and who did what."""
        from tui.screens.viewers import ViewersScreen

        self.app.push_screen(ViewersScreen(self.view))

    def action_engine(self) -> None:
        """Where it is, and ending it."""
        from tui.screens.engine import EngineScreen

        if control := self._ready():
            end = None if self.view.observing else control.end_engine
            self.app.push_screen(EngineScreen(self.view, control.stacks, end))

    # Notes --------------------------------------------------------------------------------------

    def action_note(self) -> None:
        """Write one at the step under the cursor."""
        from tui.screens.note import NoteScreen

        if self.view.observing:
            self.tell(SafeText("this screen only observes"))
            return
        if self._ready() is None:
            return
        if self.view.session is None:
            self.tell(SafeText("no session yet · ^n opens one"))
            return
        step, branch = self.view.at, self.view.columns.branch
        self.app.push_screen(NoteScreen(step), lambda text: self._noted(text, branch, step))

    def _noted(self, text: str | None, branch: int, step: int) -> None:
        control = self._ready()
        if text and control is not None:
            self._do(control.note(text, branch, step))

    def action_notes(self) -> None:
        """All of them; choosing one goes to its step."""
        from tui.screens.notes import NotesScreen

        notes = self.view.columns.notes
        if notes:
            self.app.push_screen(NotesScreen(notes, self.view.columns.branch), self._jump)
        else:
            self.tell(SafeText("no notes yet · m writes one"))

    def _jump(self, note: Noted | None) -> None:
        """To its step, where that lies on the path that is shown."""
        columns = self.view.columns
        if note is None:
            return
        if columns.owner(columns.branch, note.step + 1) != note.branch and note.branch != (
            columns.branch
        ):
            self.tell(SafeText(f"this note is on branch {note.branch} · B goes there"))
            return
        self._look(note.step)
        said = f"{who_text(note.who)}: {clip(show_text(note.text), _NOTE_CELLS)}"
        self.tell(SafeText(said))
