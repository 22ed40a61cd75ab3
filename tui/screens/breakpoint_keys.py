"""What `b` does on a screen that shows a session. Knows the view and the control; no panes."""

from textual.screen import Screen

from tui.control import Control
from tui.view import View


class BreakpointKeys(Screen[None]):
    """A screen from which breakpoints are set."""

    view: View
    control: Control | None

    def action_breakpoints(self) -> None:
        """Add or remove a condition."""
        from tui.screens.breakpoints import BreakpointsScreen

        if self.control is None or self.view.session is None:
            self.app.notify("no session yet", severity="warning", markup=False)
        else:
            self.app.push_screen(BreakpointsScreen(self.view, self.control), self._added)

    def _added(self, words: str | None) -> None:
        if words is not None:
            self.app.notify(words, severity="information", markup=False)
