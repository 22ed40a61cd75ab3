"""The last line of a screen: what keys do here, made from the action table.

Shows whole entries only. Knows actions; nothing of what they do.
"""

from collections.abc import Sequence

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from tui.keymap import Action, Scope, in_scope, key_name
from tui.theming import Palette, palette


class KeysBar(Widget):
    """`space pause/run  s step …`; a count being typed comes first."""

    def __init__(self, scopes: Sequence[Scope], bar_id: str = "keys") -> None:
        super().__init__(id=bar_id)
        self._scopes = list(scopes)
        self._count = ""
        self._colours: Palette | None = None

    def show(self, scopes: Sequence[Scope], count: str = "") -> None:
        """Other scopes, or another count."""
        self._scopes, self._count = list(scopes), count
        self.refresh()

    def notify_style_update(self) -> None:
        """The theme changed."""
        super().notify_style_update()
        self._colours = None

    def _actions(self) -> list[Action]:
        """Those with a place here, the more needed ones first."""
        actions = [a for scope in self._scopes for a in in_scope(scope) if a.footer]
        return sorted(actions, key=lambda action: action.footer)

    def render_line(self, y: int) -> Strip:
        """As many entries as fit whole."""
        self._colours = self._colours or palette(self.app.theme_variables)
        colours, columns = self._colours, self.size.width
        parts: list[Segment] = []
        used = 0
        if self._count:
            parts.append(Segment(f" {self._count}× ", colours.lit))
            used = len(self._count) + 3
        for action in self._actions():
            key = action.shown or key_name(action.keys[0])
            if used + len(key) + len(action.label) + 3 > columns:
                continue
            parts += [Segment(f" {key} ", colours.key), Segment(f"{action.label} ", colours.bar)]
            used += len(key) + len(action.label) + 3
        return Strip(parts).adjust_cell_length(columns, colours.bar)
