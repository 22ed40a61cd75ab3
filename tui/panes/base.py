"""What every pane is: a bordered widget that draws lines of segments from the view.

Knows the view and the palette; nothing of other panes.
"""

import time
from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui.keymap import Scope
from tui.text import SafeText, clip, width
from tui.theming import Palette, palette
from tui.view import View

Line = list[Segment]
"""One row of a pane, not yet padded."""


class Pane(Widget, can_focus=True):
    """Draws `draw()` when the view changed; holds no data of its own."""

    TITLE: ClassVar[str] = ""
    SCOPE: ClassVar[Scope | None] = None
    FOCUSABLE: ClassVar[bool] = True
    SLOW_S: ClassVar[float] = 0.0
    """At least so long between two drawings that data alone causes."""

    class Looked(Message):
        """Put the cursor on this step."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def __init__(self, view: View, pane_id: str) -> None:
        super().__init__(id=pane_id, classes="pane")
        self.view = view
        self.border_title = self.TITLE
        self.can_focus = self.FOCUSABLE
        self._drawn: Sequence[Line] | None = None
        self._drawn_at = 0.0
        self._late = False
        self._colours: Palette | None = None

    @property
    def palette(self) -> Palette:
        """The styles of the theme in force."""
        if self._colours is None:
            self._colours = palette(self.app.theme_variables)
        return self._colours

    def notify_style_update(self) -> None:
        """The theme changed: draw again."""
        super().notify_style_update()
        self._colours = self._drawn = None

    def refresh_from(self) -> None:
        """The view changed: draw now (titles cannot change while rows are asked for)."""
        before = self._drawn
        after = self._draw()
        if before is None or len(before) != len(after):
            self.refresh()
            return
        columns = self.size.width
        changed = [
            Region(0, y, columns, 1)
            for y, (old, new) in enumerate(zip(before, after, strict=True))
            if old != new
        ]
        if changed:
            self.refresh(*changed)

    def _draw(self) -> Sequence[Line]:
        columns, rows = self.size
        self._drawn_at = time.monotonic()
        self._drawn = self.draw(columns, rows) if columns and rows else []
        return self._drawn

    def data_changed(self) -> None:
        """Events came: draw again, though not sooner than the pane's own pace allows."""
        if not self.size.height or not self.display:
            return
        wait = self._drawn_at + self.SLOW_S - time.monotonic()
        if wait <= 0:
            self.refresh_from()
        elif not self._late:
            self._late = True
            self.set_timer(wait, self._draw_late)

    def _draw_late(self) -> None:
        """What was to be drawn may have been, meanwhile."""
        self._late = False
        self.data_changed()

    def draw(self, columns: int, rows: int) -> Sequence[Line]:
        """The pane's rows for this size, at most `rows` of them."""
        raise NotImplementedError

    def on_resize(self, _event: events.Resize) -> None:
        """Another size: draw again."""
        self.refresh_from()

    def render_line(self, y: int) -> Strip:
        """One row, padded to the pane's width."""
        drawn = self._draw() if self._drawn is None else self._drawn
        line = drawn[y] if y < len(drawn) else []
        return Strip(line).adjust_cell_length(self.size.width, self.palette.base)


def spread(left: Line, right: Line, columns: int, palette_: Palette) -> Line:
    """Left and right of one row with room between; the right part goes when there is none."""
    used = sum(width(part.text) for part in left)
    need = sum(width(part.text) for part in right)
    gap = columns - used - need
    if gap < 1:
        return left
    return [*left, Segment(" " * gap, palette_.base), *right]


def empty(message: SafeText, columns: int, rows: int, palette_: Palette) -> list[Line]:
    """A quiet sentence in the middle of a pane that has nothing to show."""
    return block([message], columns, rows, palette_)


def block(lines: Sequence[SafeText], columns: int, rows: int, palette_: Palette) -> list[Line]:
    """Quiet lines in the middle of a pane, left edges aligned."""
    indent = max((columns - max(map(width, lines))) // 2, 0)
    blank: list[Line] = [[] for _ in range(max((rows - len(lines)) // 2, 0))]
    shown = [clip(line, columns - indent) for line in lines]
    return [*blank, *([Segment(" " * indent + line, palette_.muted)] for line in shown)][:rows]
