"""The last line of a screen: what keys do here, made from the action table.

Shows whole entries only. Knows actions; nothing of what they do.
"""

from collections.abc import Sequence
from typing import Final

from rich.segment import Segment
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from tui.keymap import Action, Scope, in_scope, key_name
from tui.text import SafeText, wrap
from tui.theming import Palette, palette

_ALWAYS: Final[tuple[str, ...]] = ("main.help", "main.leave")
"""Those that stay whatever the room."""
_MOST_ROWS: Final = 3
"""Of what is said; on a low terminal fewer."""
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
        self._calm = False
        self._said: list[SafeText] = []
        self._until: Timer | None = None
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

    def tell(self, words: SafeText, *, calm: bool = False, for_s: float | None = None) -> None:
        """Say this instead of the keys, as long as it lasts; nothing: the keys again.

        It takes as many rows as it needs; whatever is above makes room.
        """
        if self._until is not None:
            self._until.stop()
        self._until = self.set_timer(for_s, self._fall_silent) if words and for_s else None
        if (words, calm) != (self._told, self._calm):
            self._told, self._calm = words, calm
            self._lay_out()
            self.refresh()

    def _fall_silent(self) -> None:
        self.tell(SafeText(""))

    def _lay_out(self) -> None:
        rows = min(_MOST_ROWS, max(self.screen.size.height // 3, 1))
        self._said = wrap(self._told, max(self.size.width - 2, 1), rows) if self._told else []
        height = max(len(self._said), 1)
        if self.styles.height is None or self.styles.height.value != height:
            self.styles.height = height

    def on_resize(self) -> None:
        """Other lines in another width."""
        self._lay_out()

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
        if self._said:
            style = colours.row_quiet if self._calm else colours.lit
            line = self._said[y] if y < len(self._said) else ""
            ground = style if len(self._said) > 1 else colours.bar
            return Strip([Segment(f" {line} ", style)]).adjust_cell_length(columns, ground)
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
