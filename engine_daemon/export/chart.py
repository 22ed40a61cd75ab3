"""What each step cost, as an SVG: time of a step over the tokens before it.

Measured points only. Knows columns and plain shapes; colours are the page's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine_daemon.recording.columns import Columns
from engine_daemon.recording.rows import Flag, Rows

WIDTH: Final = 860
HEIGHT: Final = 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 12, 34
_MOST: Final = 1200
"""Places on the curve; of longer sessions each holds the lowest and the highest of its steps."""
_DOTS: Final = 240
"""Steps up to which each is a dot too."""
_APART: Final = int(Flag.LOST | Flag.PREFILL | Flag.RESTORED)
_PAUSE: Final = int(Flag.AFTER_PAUSE)

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Chart:
    """`svg` is empty where there is nothing to draw; `xs` the place of each step (None: none)."""

    svg: str
    xs: list[float | None]
    pauses: bool = False
    naive: bool = False


def cost_chart(columns: Columns) -> Chart:
    """Time of each decode step; prefill and what was read again are no points of it."""
    rows, naive = columns, [(float(n), ms) for n, ms in columns.naive if math.isfinite(ms)]
    steps = [k for k in range(len(rows)) if not rows.flags[k] & _APART and rows.total_ms[k] > 0]
    points = [(float(rows.position[k]), rows.total_ms[k]) for k in steps]
    if len(points) < 2:
        return Chart("", [None] * len(rows))
    after = [p for p, k in zip(points, steps, strict=True) if rows.flags[k] & _PAUSE]
    plain = [p for p, k in zip(points, steps, strict=True) if not rows.flags[k] & _PAUSE]
    axes = _Axes(points, naive)
    parts = [axes.grid(), _curve(axes, plain)]
    parts += [_dot(axes, p, "pause") for p in after[-_MOST:]]
    parts += [_dot(axes, p, "naive", 4.0) for p in naive]
    cursor = f'<line id="cursor" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}" visibility="hidden"/>'
    svg = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="Milliseconds a step over the tokens before it">'
        f"{''.join(parts)}{cursor}</svg>"
    )
    return Chart(svg, _places(axes, rows), bool(after), bool(naive))


class _Axes:
    """From tokens and milliseconds to the picture."""

    def __init__(self, points: Sequence[Point], naive: Sequence[Point]) -> None:
        xs = [x for x, _ in (*points, *naive)]
        ys = sorted(y for _, y in points)
        self.low, self.high = min(xs), max(max(xs), min(xs) + 1)
        # The wildest hundredth is cut off, points without cache never are.
        most = ys[len(ys) - 1 - len(ys) // 100]
        self.top = max([most, *(y for _, y in naive)]) * 1.12

    def x(self, value: float) -> float:
        """Tokens → picture."""
        share = (value - self.low) / (self.high - self.low)
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        """Milliseconds → picture."""
        share = min(value / self.top, 1.0)
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)

    def grid(self) -> str:
        """Lines and numbers at round values."""
        parts = []
        for value in _ticks(0, self.top, 5):
            y = self.y(value)
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
                f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{value:g} ms</text>'
            )
        for value in _ticks(self.low, self.high, 10):
            x = self.x(value)
            parts.append(
                f'<text x="{x}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">{value:g}</text>'
            )
        middle = (_LEFT + WIDTH - _RIGHT) / 2
        words = "tokens before the step"
        parts.append(f'<text x="{middle}" y="{HEIGHT - 3}" text-anchor="middle">{words}</text>')
        return "".join(parts)


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Round values from low to high, some `about` of them."""
    span = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(span))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= span)
    first = math.ceil(low / step)
    return [round(k * step, 9) for k in range(first, math.floor(high / step) + 1)]


def _curve(axes: _Axes, points: Sequence[Point]) -> str:
    if not points:
        return ""
    places = " ".join(f"{axes.x(x)},{axes.y(y)}" for x, y in _thinned(sorted(points)))
    dots = [_dot(axes, p, "one") for p in points] if len(points) <= _DOTS else []
    return f'<polyline class="all" points="{places}"/>{"".join(dots)}'


def _thinned(points: list[Point]) -> list[Point]:
    """Few enough to draw; no peak and no dip is lost."""
    if len(points) <= 2 * _MOST:
        return points
    kept: list[Point] = []
    for k in range(_MOST):
        bucket = points[k * len(points) // _MOST : (k + 1) * len(points) // _MOST]
        lowest, highest = min(bucket, key=lambda p: p[1]), max(bucket, key=lambda p: p[1])
        kept += sorted({lowest, highest})
    return kept


def _dot(axes: _Axes, point: Point, name: str, radius: float = 2.2) -> str:
    x, y = axes.x(point[0]), axes.y(point[1])
    return f'<circle class="{name}" cx="{x}" cy="{y}" r="{radius}"/>'


def _places(axes: _Axes, rows: Rows) -> list[float | None]:
    lost = int(Flag.LOST)
    known = zip(rows.position, rows.flags, strict=True)
    return [None if flags & lost else axes.x(min(x, axes.high)) for x, flags in known]
