"""A plot of points as lines of text. The only file that knows plotext.

It takes 100 to 200 ms to load: no picture and no key waits for it.

Knows numbers and cells; nothing of steps or colours.
"""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

DOT: Final = "•"
MARK: Final = "×"
STOP: Final = "◆"
PAUSED: Final = "▴"
DERIVED: Final = "~"
ABOVE: Final = "↑"
"""A point above what the axis reaches to; its figure stands beside it."""
BELOW: Final = "↓"

_over: Final = threading.Event()
_missing: Final = threading.Event()


@dataclass(frozen=True, slots=True)
class Series:
    """Points that share a marker, one character a cell."""

    xs: Sequence[float]
    ys: Sequence[float]
    marker: str = DOT

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]], marker: str) -> Self:
        """Of pairs."""
        return cls([x for x, _ in points], [y for _, y in points], marker)

    def within(self, high: float) -> Self:
        """What lies above is drawn at the top."""
        return replace(self, ys=[min(y, high) for y in self.ys])


def load_beside(then: Callable[[], object]) -> None:
    """Load plotext on a thread of its own; `then` is called on it when that is over."""

    def load() -> None:
        try:
            import plotext  # noqa: F401
        except Exception:  # noqa: BLE001  whatever is wrong with it, the screen goes on without it
            _missing.set()
        finally:
            _over.set()
            then()

    threading.Thread(target=load, name="plotext", daemon=True).start()


def is_loaded() -> bool:
    """Nobody waits for plotext any more."""
    return _over.is_set()


def is_missing() -> bool:
    """It cannot be loaded: nothing will ever be plotted."""
    return _missing.is_set()


def plot_lines(
    series: Sequence[Series],
    width: int,
    height: int,
    *,
    low: float,
    high: float,
    whole_x: bool = True,
    above: Sequence[tuple[float, str]] = (),
) -> list[str]:
    """`height` lines of `width` cells, without colour; empty when there is nothing to draw. Points
    that are no numbers, as a damaged recording may hold, are left out.

    `above`: places of points that lie above `high`, with what is written beside their mark.
    """
    marks = Series([x for x, _ in above], [high] * len(above), ABOVE)
    points = [one for one in map(_finite, (*series, marks)) if one.xs]
    drawable = width >= 16 and height >= 4 and 0 < high - low < math.inf
    if not points or not drawable or is_missing():
        return []
    import plotext

    figure = plotext.figure
    figure.clear.all()
    plotext.terminal.limit(False, False)
    figure.plot_size(width, height)
    figure.canvas("default")
    figure.axes(False, side=1)
    xs = [x for one in points for x in (min(one.xs), max(one.xs))]
    left, right = min(xs), max(xs)
    if left == right:
        left, right = left - 1, right + 1
    across, up = 2 * width / (right - left), 2 * height / ((high - low) or 1.0)
    for one in points:
        figure.draw(figure.signal(*_thinned(one, across, up), marker=one.marker))
    figure.ruler(0, 0).lim(left, right)
    figure.ruler(1, 0).lim(low, high)
    ticks = _ticks(left, right, max(width // 16, 2), whole_x)
    figure.ruler(0, 0).ticks(ticks, [f"{tick:,.0f}".replace(",", " ") for tick in ticks])
    levels = _ticks(low, high, max(height // 3, 2) + 1, False)
    figure.ruler(1, 0).ticks(levels, [_label(level, high) for level in levels])
    text: str = figure.build().string(colorless=True)
    lines = text.rstrip("\n").split("\n")
    lines[0] = _labelled(lines[0], [((x - left) / (right - left), label) for x, label in above])
    return lines


def _finite(series: Series) -> Series:
    pairs = zip(series.xs, series.ys, strict=True)
    if all(math.isfinite(x) and math.isfinite(y) for x, y in pairs):
        return series
    pairs = zip(series.xs, series.ys, strict=True)
    kept = [(x, y) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]
    return Series([x for x, _ in kept], [y for _, y in kept], series.marker)


def _labelled(line: str, above: Sequence[tuple[float, str]]) -> str:
    """The top line with a label beside each mark that has room for it; `above` by share of x."""
    places = [at for at, char in enumerate(line) if char == ABOVE]
    if not places:
        return line
    first = max((at for at, char in enumerate(line[: places[0]]) if char != " "), default=-1) + 1
    cells = list(line)
    for share, label in above:
        wanted = first + share * (len(line) - 1 - first)
        at = min(places, key=lambda place: abs(place - wanted))
        for start, gap in ((at + 1, (0, 1)), (at - len(label), (1, 0))):
            end = start + len(label)
            free = "".join(cells[max(start - gap[0], 0) : end + gap[1]]).strip() == ""
            if free and first <= start and end <= len(cells):
                cells[start:end] = label
                break
    return "".join(cells)


def _thinned(series: Series, across: float, up: float) -> tuple[list[float], list[float]]:
    """One point of those that fall into one half of a cell: plotext's time goes by points.

    `across` and `up`: half cells a unit.
    """
    kept = {
        (x * across // 1, y * up // 1): (x, y) for x, y in zip(series.xs, series.ys, strict=True)
    }
    return [x for x, _ in kept.values()], [y for _, y in kept.values()]


def _ticks(low: float, high: float, count: int, whole: bool) -> list[float]:
    """Round places between two values, the ends left out where they are not round."""
    span = (high - low) or 1.0
    rough, step = span / count, 1.0
    while step < rough:
        step *= 10
    while step > rough:
        step /= 10
    step *= next(factor for factor in (1, 2, 5, 10) if step * factor >= rough)
    if whole:
        step = max(step, 1.0)
    first = -(-low // step) * step
    return [first + step * k for k in range(int((high - first) / step + 1e-9) + 1)]


def _label(value: float, high: float) -> str:
    if high >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.0f}" if high >= 10 else f"{value:.1f}" if high >= 1 else f"{value:.2f}"
