"""COST PER STEP: what a step took against the length of the sequence, as measured.

Redraws at most four times a second. Steps right after a pause are marked and kept out of the
curve; nothing is derived here. Knows columns and a plot; no tokens.
"""

from collections.abc import Sequence
from typing import ClassVar, Final, Literal

from rich.segment import Segment
from rich.style import Style

from engine_daemon.recording.rows import Flag
from tui.keymap import Scope, bindings
from tui.panes.base import Line, Pane, empty, spread
from tui.text import SafeText, millis
from tui.widgets.curve import Curve
from tui.widgets.plot import DOT, MARK, Series, plot_lines

Mode = Literal["ms", "total", "rate"]
_MODES: Final[dict[Mode, str]] = {
    "ms": "ms a step",
    "total": "ms so far",
    "rate": "tokens a second",
}
_SLICE: Final = 5000
"""Steps taken in a drawing."""
_LOST: Final = int(Flag.LOST)
_READ_MORE: Final = int(Flag.PREFILL | Flag.RESTORED)
_AFTER_PAUSE: Final = int(Flag.AFTER_PAUSE)
"""Bits as plain ints: an enum's `&` costs a microsecond, here for every step."""


class CostPane(Pane):
    """Time of each decode step over the tokens before it; `m` changes what is drawn."""

    TITLE: ClassVar[str] = "COST PER STEP"
    SCOPE: ClassVar[Scope | None] = "cost"
    BINDINGS = bindings("cost")
    SLOW_S: ClassVar[float] = 0.25

    _of: object = None
    _taken = 0
    _mode: Mode = "ms"
    _sum = 0.0
    _prefill: tuple[int, float] | None = None

    def _restart(self) -> None:
        self._of, self._taken, self._sum, self._prefill = self.view.path, 0, 0.0, None
        self._curve, self._so_far = Curve(), Curve()
        self._pauses: list[tuple[float, float]] = []

    def _take(self) -> None:
        """The steps since the last drawing, a slice of them at most."""
        store = self.view.columns
        if self._of != self.view.path:
            self._restart()
        end = min(len(store), self._taken + _SLICE)
        for step in range(self._taken, end):
            self._take_step(step)
        self._taken = end
        if end < len(store):
            self.set_timer(0.05, self.refresh_from)

    def _take_step(self, step: int) -> None:
        store = self.view.columns
        flags, spent, length = store.flags[step], store.total_ms[step], store.position[step]
        if flags & _LOST:
            return
        self._sum += spent
        self._so_far.add(length, self._sum)
        if flags & _READ_MORE:
            self._prefill = (store.processed[step], spent)
        elif flags & _AFTER_PAUSE:
            self._pauses = [*self._pauses[-63:], (length, spent)]
        else:
            self._curve.add(length, spent)

    def data_changed(self) -> None:
        """Nothing here depends on the cursor: draw again for new steps only."""
        store = self.view.columns
        if self._of != self.view.path or self._taken != len(store):
            super().data_changed()

    def draw(self, columns: int, rows: int) -> Sequence[Line]:
        """A caption and the plot."""
        self._take()
        caption = self._caption(columns)
        series = self._series()
        if not any(one.xs for one in series):
            words = SafeText("Steps after the first one are drawn here")
            return [caption, *empty(words, columns, rows - 1, self.palette)]
        ys = [y for one in series for y in one.ys]
        low, high = self._range(ys)
        lines = plot_lines(series, columns, rows - 1, low=low, high=high)
        return [caption, *(self._coloured(line) for line in lines)]

    def _range(self, ys: list[float]) -> tuple[float, float]:
        """From zero to a little over all but the wildest hundredth."""
        ordered = sorted(ys)
        most = ordered[-1 - len(ordered) // 100]
        return 0.0, most * 1.15 or 1.0

    def _series(self) -> list[Series]:
        curve = self._curve
        if self._mode == "total":
            return [Series(self._so_far.xs(), self._so_far.ys())]
        xs, ys = curve.xs(), curve.ys()
        marks = self._pauses
        if self._mode == "rate":
            ys = [1000 / y if y else 0.0 for y in ys]
            marks = [(x, 1000 / y) for x, y in marks if y]
        # What is drawn last is on top: the measured points.
        return [Series([x for x, _ in marks], [y for _, y in marks], MARK), Series(xs, ys)]

    def _caption(self, columns: int) -> Line:
        palette = self.palette
        left = [Segment(f"{_MODES[self._mode]} over tokens before it", palette.muted)]
        right: Line = []
        if self._curve.seen and self._mode != "total":
            right = [
                Segment(f"{DOT} ", palette.plot),
                Segment("measured", palette.base),
            ]
        if self._pauses and self._mode != "total":
            right.append(Segment(f"  {MARK} ", palette.mark))
            right.append(Segment("after a pause", palette.base))
        if self._prefill is not None:
            read, spent = self._prefill
            right.append(Segment(f"  prefill {read}: {millis(spent)}", palette.muted))
        return spread(left, right, columns, palette)

    def _coloured(self, line: str) -> Line:
        """Points in the plot's colour, axes quiet."""
        parts: Line = []
        run, style = "", self.palette.muted
        for char in line:
            wanted = self._style(char)
            if wanted is not style and run:
                parts.append(Segment(run, style))
                run = ""
            run, style = run + char, wanted
        return [*parts, Segment(run, style)]

    def _style(self, char: str) -> Style:
        if char == DOT:
            return self.palette.plot
        return self.palette.mark if char == MARK else self.palette.muted

    def action_mode(self) -> None:
        """What the plot shows: one step, all so far, or tokens a second."""
        modes = list(_MODES)
        self._mode = modes[(modes.index(self._mode) + 1) % len(modes)]
        self.refresh_from()
