"""What `b` does on a screen that shows a session. Knows the view and the control; no panes."""

from tui.control import Control
from tui.screens.telling import Telling
from tui.view import View


class BreakpointKeys(Telling):
    """A screen from which breakpoints are set."""

    view: View

    def _ready(self) -> Control | None:
        raise NotImplementedError

    def action_breakpoints(self) -> None:
        """Add or remove a condition."""
        from tui.screens.breakpoints import BreakpointsScreen

        control = self._ready()
        if control is None:
            return
        if self.view.observing:
            self.say("this screen only observes")
        elif self.view.session is None:
            self.say("no session yet\n^n opens one")
        else:
            self.app.push_screen(BreakpointsScreen(self.view, control), self._added)

    def _added(self, words: str | None) -> None:
        if words is not None:
            self.say(words, calm=True)
