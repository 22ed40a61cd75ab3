"""COST PER STEP: what a step took against the length of the sequence.

Measured: each step with its cache, and forwards without cache where somebody measured them (×).
Derived, and drawn as such: the curve between those, and the two parts of a cached step's cost.
Steps right after a pause are marked and kept out of both; so are steps far off from those around
them, which the axis does not reach to. Redraws at most four times a second.
Knows columns and a plot; no tokens.
"""

import math
import re
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import ClassVar, Final, Literal

from rich.segment import Segment
from rich.style import Style

from engine_daemon.recording.fits import LineFit, curve_between
from engine_daemon.recording.rows import Flag
from tui.keymap import Scope, bindings
from tui.panes.base import Line, Pane, block, spread
from tui.text import SafeText, millis, width
from tui.widgets.curve import Curve
from tui.widgets.legend import Entry
from tui.widgets.plot import (
    ABOVE,
    BELOW,
    DERIVED,
    DOT,
    MARK,
    PAUSED,
    STOP,
    Series,
    is_loaded,
    is_missing,
    load_beside,
    plot_lines,
)
from tui.widgets.sieve import Kind, Point, Sieve

Mode = Literal["ms", "cached", "total", "rate"]
_MODES: Final[dict[Mode, str]] = {
    "ms": "ms a step",
    "cached": "ms a cached step",
    "total": "ms so far",
    "rate": "tokens a second",
}
_SLICE: Final = 5000
"""Steps taken in a drawing."""
_MOST_MARKS: Final = 64
_SIGNS: Final = (MARK, PAUSED, STOP, ABOVE, BELOW)
_FIGURE: Final = re.compile(f"(?:[0-9.]+ m?s)?{ABOVE}(?:[0-9.]+ m?s)?")
"""A step that the axis does not reach to, with what it took."""
_LOST: Final = int(Flag.LOST)
_PREFILL: Final = int(Flag.PREFILL)
_READ_MORE: Final = int(Flag.PREFILL | Flag.RESTORED)
_AFTER_PAUSE: Final = int(Flag.AFTER_PAUSE)
"""Bits as plain ints: an enum's `&` costs a microsecond, here for every step."""
_LEAST_CONSTANT: Final = 0.5
"""Of the cheapest step, from which on a line's constant is said to be what any step costs."""
_NOTHING: Final = (
    SafeText("Steps after the first one are drawn here"),
    SafeText("N  measures a forward without cache, to compare"),
)
_LEAST_ROWS: Final = 8
"""Rows from which on there is room for a second caption."""


class CostPane(Pane):
    """Time of each decode step over the tokens before it; `M` changes what is drawn."""

    TITLE: ClassVar[str] = "COST PER STEP"
    SCOPE: ClassVar[Scope | None] = "cost"
    BINDINGS = bindings("cost")
    SLOW_S: ClassVar[float] = 0.25

    _of: object = None
    _taken = 0
    _going_on = False
    _plot_asked = False
    _mode: Mode = "ms"
    _sum = 0.0
    _prefill: tuple[int, float] | None = None
    _shown = (0, (0, 0), 0)
    """Steps, measured points and those to come, and stops of conditions in the last drawing."""

    def _restart(self) -> None:
        self._of, self._taken, self._sum, self._prefill = self.view.path, 0, 0.0, None
        self._curve, self._so_far, self._fit = Curve(), Curve(), LineFit()
        self._shown = (-1, (0, 0), 0)
        self._pauses: list[tuple[float, float]] = []
        self._sieve = Sieve()
        self._far: list[tuple[float, float]] = []
        self._far_seen, self._far_most = 0, 0.0

    def _take(self) -> None:
        """The steps since the last drawing, a slice of them at most."""
        steps = self.view.steps
        if self._of != self.view.path or self._taken > steps:
            self._restart()
        end = min(steps, self._taken + _SLICE)
        for step in range(self._taken, end):
            self._take_step(step)
        self._taken = end
        if end < steps and not self._going_on:
            self._going_on = True
            self.set_timer(0.05, self._take_on)

    def _take_on(self) -> None:
        """Another slice; what it changes is drawn at the pane's own pace."""
        self._going_on = False
        if self.size.height:
            self._take()
            self.data_changed()

    def _take_step(self, step: int) -> None:
        store = self.view.columns
        flags, spent, length = store.flags[step], store.total_ms[step], store.position[step]
        if flags & _LOST or not 0 <= spent < math.inf:  # a damaged recording may hold anything
            return
        kind: Kind = "plain"
        if flags & _READ_MORE:
            kind = "other"
        elif flags & _AFTER_PAUSE:
            kind = "pause"
        if flags & _PREFILL and store.processed[step]:
            # A restored decode step is no prefill, and from a kept row nothing is read.
            self._prefill = (store.processed[step], spent)
        for point in self._sieve.add(length, spent, kind):
            self._take_judged(point)

    def _take_judged(self, point: Point) -> None:
        """A step far off is told of beside the axis, and counts nowhere."""
        if point.far:
            self._far = [*self._far[1 - _MOST_MARKS :], (point.x, point.y)]
            self._far_seen, self._far_most = self._far_seen + 1, max(self._far_most, point.y)
            return
        self._sum += point.y
        self._so_far.add(point.x, self._sum)
        if point.kind == "pause":
            self._pauses = [*self._pauses[1 - _MOST_MARKS :], (point.x, point.y)]
        elif point.kind == "plain":
            self._curve.add(point.x, point.y)
            self._fit.add(point.x, point.y)

    def data_changed(self) -> None:
        """Draw again for other steps and points only: the cursor is nothing here, but in a replay
        that hides what comes after it."""
        store, steps = self.view.columns, self.view.steps
        points = (len(store.naive), store.measuring)
        if self._of != self.view.path or self._shown != (steps, points, len(store.fired)):
            super().data_changed()

    def draw(self, columns: int, rows: int) -> Sequence[Line]:
        """Captions and the plot."""
        self._take()
        store = self.view.columns
        self._shown = (self._taken, (len(store.naive), store.measuring), len(store.fired))
        captions = [self._caption(columns)]
        parts = self._parts(columns)
        if parts and rows >= _LEAST_ROWS:
            captions.append(parts)
        series = self._series()
        ready = self._has_plot()
        words = _NOTHING[: 1 if self.view.replay else None]
        if is_missing():
            words = (SafeText("no plot: plotext cannot be imported"),)
        if is_missing() or not any(one.xs for one in series):
            return [*captions, *block(words, columns, rows - len(captions), self.palette)]
        if not ready:
            return captions
        high = self._highest(series)
        above = self._above()
        series = [one.within(high) if one.marker == STOP else one for one in series]
        lines = plot_lines(series, columns, rows - len(captions), low=0.0, high=high, above=above)
        return [*captions, *(self._coloured(line) for line in lines)]

    def _has_plot(self) -> bool:
        """Whether what draws it is loaded; that begins after the first picture, which is drawn
        again when it is."""
        if not is_loaded() and not self._plot_asked:
            self._plot_asked = True
            again = partial(self.call_later, self.refresh_from)
            self.call_after_refresh(load_beside, again)
        return is_loaded()

    def _highest(self, series: list[Series]) -> float:
        """A little over everything that is drawn at its place."""
        return max(y for one in series if one.marker != STOP for y in one.ys) * 1.15 or 1.0

    def _above(self) -> list[tuple[float, str]]:
        """Steps that the axis does not reach to, and what they took."""
        if self._mode in ("total", "rate"):
            return []
        return [(x, millis(y)) for x, y in sorted(self._all_far())]

    def _all_far(self) -> list[tuple[float, float]]:
        return [*self._far, *((one.x, one.y) for one in self._sieve.first() if one.far)]

    @property
    def _points(self) -> list[tuple[float, float]]:
        """Measured forwards without cache, by length, as far as the text is shown."""
        naive, most = self.view.columns.naive, self.view.length
        return sorted((float(at), ms) for at, ms in naive if at <= most and 0 <= ms < math.inf)

    def _series(self) -> list[Series]:
        curve = self._curve
        first = [one for one in self._sieve.first() if not one.far]
        if self._mode == "total":
            sums = list(accumulate((one.y for one in first), initial=self._sum))[1:]
            xs = [*self._so_far.xs(), *(one.x for one in first)]
            return [Series(xs, [*self._so_far.ys(), *sums])]
        plain = [one for one in first if one.kind == "plain"]
        xs = [*curve.xs(), *(one.x for one in plain)]
        ys = [*curve.ys(), *(one.y for one in plain)]
        paused = [(one.x, one.y) for one in first if one.kind == "pause"]
        marks, points, far = [*self._pauses, *paused], self._points, []
        derived = curve_between(points, 64)
        if self._mode == "cached":
            points, derived = [], []
        if self._mode == "rate":
            ys = [1000 / y if y else 0.0 for y in ys]
            marks = [(x, 1000 / y) for x, y in marks if y]
            far = [(x, 1000 / y) for x, y in self._all_far()]
            points = [(x, 1000 / y) for x, y in points if y]
            derived = [(x, 1000 / y) for x, y in derived if y > 0]
        return [
            # What is drawn last is on top: the measured points, and of those where it stopped.
            Series.of(derived, DERIVED),
            Series.of(marks, PAUSED),
            Series(xs, ys),
            Series.of(far, BELOW),
            Series.of(points, MARK),
            Series.of(self._stopped_at(), STOP),
        ]

    def _stopped_at(self) -> list[tuple[float, float]]:
        """The last steps that a condition was true of, where the curve is there. One that is
        still pending cost nothing yet: it is drawn at the step before it."""
        store, steps = self.view.columns, self.view.steps
        found: list[tuple[float, float]] = []
        last = steps if steps == len(store) else steps - 1
        fired = [step for step, _ in store.fired_here() if step <= last]
        for step in fired[-_MOST_MARKS:]:
            at = min(step, steps - 1)
            spent = store.total_ms[at] if at > 0 else math.nan
            if 0 < spent < math.inf:
                y = 1000 / spent if self._mode == "rate" else spent
                found.append((store.position[at] + (step - at), y))
        return sorted(found)

    # Captions ---------------------------------------------------------------------------------

    def _caption(self, columns: int) -> Line:
        """What is drawn, and the legend: all that is plotted is in it, in the longest words that
        there is room for; figures give way first."""
        palette, store = self.palette, self.view.columns
        mode = _MODES[self._mode]
        lefts = [f"{mode} over tokens before it", mode]
        if store.measuring:
            lefts = [f"measuring, {store.measuring} to come", f"{store.measuring} to come"]
        entries = self._legend()
        forms = [*((lefts[0], form) for form in range(3)), (lefts[1], 2), (lefts[1], 3), ("", 3)]
        for words, form in forms:
            legend = [part for entry in entries for part in entry.parts(form, palette)]
            room = columns - width(words) - 1 - sum(width(part.text) for part in legend)
            if room >= 0:
                break
        if self._prefill is not None:
            read, spent = self._prefill
            figure = f"  prefill {read}: {millis(spent)}"
            if width(figure) <= room:
                legend.append(Segment(figure, palette.muted))
        left = [Segment(words, palette.accent if store.measuring else palette.muted)]
        return spread(left, legend, columns, palette) if room >= 0 else legend

    def _legend_of_far(self) -> list[Entry]:
        """How many steps stand beside the plot, and what the longest took."""
        first = [one.y for one in self._sieve.first() if one.far]
        many = self._far_seen + len(first)
        if not many:
            return []
        most = millis(max([self._far_most, *first]))
        sign = BELOW if self._mode == "rate" else ABOVE
        off = f"{many} step{'' if many == 1 else 's'} far off"
        words = f"{off}: {most}" if many == 1 else f"{off}, up to {most}"
        left_out = ", left out" if self._mode == "total" else ""
        return [Entry(sign, (words + left_out, off + left_out, f"{many} far off", "far"))]

    def _legend(self) -> list[Entry]:
        """Of each sign in the plot, from the longest words to the shortest."""
        store, first = self.view.columns, [one for one in self._sieve.first() if not one.far]
        if self._mode == "total":
            return self._legend_of_far()
        entries: list[Entry] = []
        if self._curve.seen or any(one.kind == "plain" for one in first):
            naive = store.limits is not None and store.limits.cache_mode == "none"
            words = "measured, no cache" if naive else "measured"
            entries.append(Entry(DOT, (words, words, words, "no cache" if naive else "measured")))
        entries += self._legend_of_far()
        if (points := self._points) and self._mode != "cached":
            entries.append(Entry(MARK, ("no cache",) * 4))
            if len({length for length, _ in points}) > 1:
                entries.append(Entry(DERIVED, ("derived",) * 4))
        if self._pauses or any(one.kind == "pause" for one in first):
            entries.append(Entry(PAUSED, ("after a pause", "after a pause", "pause", "pause")))
        if self._stopped_at():
            entries.append(Entry(STOP, ("breakpoint", "breakpoint", "breakpoint", "stop")))
        return entries

    def _parts(self, columns: int) -> Line:
        """The constant and the growing part of a step's cost: a fit, and said to be one."""
        fit = self._fit
        slope, error, constant = fit.slope, fit.error, fit.constant
        if slope is None or error is None or constant is None:
            return []
        if not fit.grows:
            parts = f"mean {millis(fit.mean)}"
            longest = f"{parts}, the scatter hides any growth"
        else:
            digits = 2 if error <= 0 else min(max(1 - math.floor(math.log10(error * 1000)), 0), 2)
            parts = f"growing {slope * 1000:+.{digits}f} ± {error * 1000:.{digits}f} µs a token"
            longest = parts
            if constant >= _LEAST_CONSTANT * fit.least:  # a smaller one was seen in no step
                longest = f"constant {millis(constant)}, {parts}"
        without = f", no {ABOVE}" if self._far_seen else ""
        over = (f" (fit over {fit.seen} steps{without})", f" ({fit.seen} steps{without})", "")
        rest = [f"{words}{end}" for words in (longest, parts) for end in over]
        cached, shortest = self._against_no_cache()
        heads = [f"{one}, " if one else "" for one in (cached, shortest)]
        forms = [heads[0] + one for one in rest] + [heads[1] + one for one in (longest, parts)]
        for words in (f"derived: {one}" for one in (*forms, *rest)):
            if width(words) <= columns:
                return [Segment(words, self.palette.accent)]
        return []

    def _against_no_cache(self) -> tuple[str, str]:
        """How many times as long as a cached step the longest forward without cache took: of the
        lengths that were measured, among those of the steps. With that length, and without."""
        fit, store = self._fit, self.view.columns
        if store.limits is not None and store.limits.cache_mode == "none":
            return "", ""
        first, last = fit.reach
        among = [point for point in self._points if first <= point[0] <= last + 1]
        if not among:
            return "", ""
        length = among[-1][0]
        spent = [ms for at, ms in among if at == length]
        slope, constant = fit.slope, fit.constant
        step = fit.mean
        if fit.grows and slope is not None and constant is not None:
            step = constant + slope * length
        if step <= 0:
            return "", ""
        factor = f"without cache {sum(spent) / len(spent) / step:.1f}x"
        many = "once" if len(spent) == 1 else f"{len(spent)} times"
        return f"{factor} ({many} at {length:.0f} tokens)", factor

    def _coloured(self, line: str) -> Line:
        """Points in the plot's colour, axes quiet."""
        parts: Line = []
        run, style = "", self.palette.muted
        figures = [found.span() for found in _FIGURE.finditer(line)]
        for place, char in enumerate(line):
            beside = any(start <= place < end for start, end in figures)
            wanted = self.palette.mark if beside else self._style(char)
            if wanted is not style and run:
                parts.append(Segment(run, style))
                run = ""
            run, style = run + char, wanted
        return [*parts, Segment(run, style)]

    def _style(self, char: str) -> Style:
        if char == DOT:
            return self.palette.plot
        if char == DERIVED:
            return self.palette.accent
        return self.palette.mark if char in _SIGNS else self.palette.muted

    def action_mode(self) -> None:
        """What the plot shows: one step, all so far, or tokens a second."""
        modes: list[Mode] = [m for m in _MODES if m != "cached" or self.view.columns.naive]
        now = modes.index(self._mode) if self._mode in modes else 0
        self._mode = modes[(now + 1) % len(modes)]
        self.refresh_from()
