"""The last line of a screen: what keys do here, made from the action table.

Shows whole entries only. Knows actions; nothing of what they do.
"""

from collections.abc import Sequence
from typing import Final

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from tui.keymap import Action, Scope, in_scope, key_name
from tui.text import SafeText, clip
from tui.theming import Palette, palette

_ALWAYS: Final[tuple[str, ...]] = ("main.help", "main.leave")
"""Those that stay whatever the room."""
_NARROW: Final = 40
"""Cells below which only keys are shown, without what they do."""


class KeysBar(Widget):
    """`space pause/run  s step …`; a count being typed comes first."""

    def __init__(self, scopes: Sequence[Scope], bar_id: str = "keys") -> None:
        super().__init__(id=bar_id)
        self._scopes = list(scopes)
        self._count = ""
        self._first = ("", "")
        self._without: frozenset[str] = frozenset()
        self._told = SafeText("")
        self._colours: Palette | None = None

    def show(
        self,
        scopes: Sequence[Scope],
        count: str = "",
        *,
        first: tuple[str, str] = ("", ""),
        without: frozenset[str] = frozenset(),
    ) -> None:
        """Other scopes, or another count. `first`: the action that comes first, and what it
        does now; `without`: those that would do nothing now."""
        shown = (list(scopes), count, first, without)
        if shown != (self._scopes, self._count, self._first, self._without):
            self._scopes, self._count, self._first, self._without = shown
            self.refresh()

    @property
    def told(self) -> SafeText:
        """What is said instead of the keys; empty: the keys are shown."""
        return self._told

    def tell(self, words: SafeText) -> None:
        """Say this instead of the keys; nothing: the keys again."""
        if words != self._told:
            self._told = words
            self.refresh()

    def notify_style_update(self) -> None:
        """The theme changed."""
        super().notify_style_update()
        self._colours = None

    def _actions(self) -> list[Action]:
        """Those with a place here, the more needed ones first; of one key the focused scope's."""
        actions: list[Action] = []
        keys: set[str] = set()
        for action in (action for scope in self._scopes for action in in_scope(scope)):
            here = action.footer or action.id == self._first[0]
            if here and action.keys[0] not in keys and action.id not in self._without:
                actions.append(action)
                keys.add(action.keys[0])
        return sorted(actions, key=lambda action: (action.id != self._first[0], action.footer))

    def render_line(self, y: int) -> Strip:
        """As many entries as fit whole; those for help and for leaving always."""
        self._colours = self._colours or palette(self.app.theme_variables)
        colours, columns = self._colours, self.size.width
        if self._told:
            told = [Segment(f" {clip(self._told, columns - 2)} ", colours.lit)]
            return Strip(told).adjust_cell_length(columns, colours.bar)
        actions = self._actions()
        entries = {action.id: self._entry(action, columns) for action in actions}
        always: list[str] = [name for name in _ALWAYS if name in entries]
        kept = {name: sum(map(len, entries[name])) for name in always}
        parts: list[Segment] = []
        used = 0
        if self._count:
            parts.append(Segment(f" {self._count}× ", colours.lit))
            used = len(self._count) + 3
        for action in actions:
            key, label = entries[action.id]
            kept.pop(action.id, None)
            if used + len(key) + len(label) + sum(kept.values()) > columns:
                continue
            parts += [Segment(key, colours.key), Segment(label, colours.bar)]
            used += len(key) + len(label)
        return Strip(parts).adjust_cell_length(columns, colours.bar)

    def _entry(self, action: Action, columns: int) -> tuple[str, str]:
        """Key and label as they are shown."""
        name, other = self._first
        label = other if action.id == name else action.label
        key = f" {action.shown or key_name(action.keys[0])} "
        return key, "" if columns < _NARROW else f"{label} "
