"""Which pane has the focus, which is in front, which has the whole screen.

A part of the main screen in a file of its own. Knows panes by their names.
"""

from typing import Final

from textual import events
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

from tui.keymap import Scope, in_scope, key_name
from tui.panes import PANES
from tui.panes.base import Pane
from tui.screens.telling import Telling

_BEHIND: Final = ("tokens", "cost", "cache")
"""Panes that share one place on small terminals."""


def _way(screen: Screen[None]) -> str:
    return "tab goes there" if screen.maximized is None else "z shows all panes"


def where_hidden(screen: Screen[None], pane_id: str) -> str:
    """Which pane shows what a key did, and how to see it; empty where it is seen."""
    pane = screen.query_one(f"#{pane_id}", Pane)
    return "" if pane.is_on_screen else f"{pane.TITLE} shows it: {_way(screen)}"


class Arranging(Telling):
    """What the main screen does with its panes."""

    _front = _BEHIND[0]
    _count = ""

    def _set_count(self, count: str) -> None:
        raise NotImplementedError

    def _show_keys(self) -> None:
        raise NotImplementedError

    def _bring_forward(self, pane_id: str) -> None:
        self._front = pane_id
        for name in _BEHIND:
            self.query_one(f"#{name}").set_class(name == pane_id, "-front")
            self._title(name)

    def _title(self, name: str) -> None:
        """On small terminals the border of the one in front names all three."""
        pane = self.query_one(f"#{name}", Pane)
        if self.has_class("-full-w") and self.has_class("-full-h"):
            pane.border_title = pane.TITLE
            return
        titles = [(PANES[other].TITLE, "bold" if other == name else "dim") for other in _BEHIND]
        parts = [part for title in titles for part in ((" │ ", "dim"), title)]
        pane.border_title = Content.assemble(*parts[1:])

    def on_resize(self, _event: events.Resize) -> None:
        """Titles and focus go with the layout."""
        self.call_after_refresh(self._laid_out)

    def _laid_out(self) -> None:
        self._bring_forward(self._front)
        small = self.query_one("#glance").display
        if self.focused is None and not small:
            self.query_one("#sequence").focus()
        self._show_keys()

    def on_descendant_focus(self, _event: events.DescendantFocus) -> None:
        """The keys of the focused pane come first in the last line."""
        self._set_count(self._count)

    def action_next_pane(self) -> None:
        """Focus the next one."""
        self._focus_by(1)

    def action_previous_pane(self) -> None:
        """Focus the one before."""
        self._focus_by(-1)

    def _focus_by(self, places: int) -> None:
        names = [name for name, pane in PANES.items() if pane.FOCUSABLE]
        now = self.focused.id if self.focused is not None else None
        start = names.index(now) if now in names else -places
        self._focus_on(names[(start + places) % len(names)])

    def _focus_on(self, name: str) -> None:
        if self.maximized is not None:
            self.minimize()
        if name in _BEHIND:
            self._bring_forward(name)
        self.query_one(f"#{name}").focus()

    def action_in_pane(self, scope: Scope, name: str) -> None:
        """What one pane does, wherever the focus is; of one that is not seen, where it is."""
        self._set_count("")
        panes = [pane for pane in self.query(Pane) if scope == pane.SCOPE]
        seen = next((pane for pane in panes if pane.is_on_screen), None)
        if seen is not None:
            self.call_later(seen.run_action, name)
            return
        key = next(key_name(one.keys[0]) for one in in_scope(scope) if one.name == name)
        self.say(f"{key} belongs to {panes[0].TITLE}: {_way(self)}", calm=True)

    def action_zoom(self) -> None:
        """The focused pane alone, or all again."""
        focused: Widget | None = self.focused
        if self.maximized is not None:
            self.minimize()
        elif isinstance(focused, Pane):
            self.maximize(focused, container=False)
        self._show_keys()
