"""Least squares over recorded times: what a step costs at any length and what grows with it.

Derived numbers, always told apart from measured ones. Knows numbers only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

LEAST_STEPS: Final = 8
"""Points from which on a line through them says anything."""
_MOST_ALIKE: Final = 0.98
_NOTHING: Final = 1e-12
"""Of the scatter: less than that is rounding."""


@dataclass(slots=True)
class LineFit:
    """ms = `constant` + `slope` x tokens, through points added one by one, as they were measured.

    What a machine does beside (a clock that changes, another program) lasts for many steps, so the
    scatter of neighbours is alike. `_pairs` holds what the likeness of neighbours is told from.
    """

    seen: int = 0
    _x: float = 0.0
    _y: float = 0.0
    _xx: float = 0.0
    _xy: float = 0.0
    _yy: float = 0.0
    _first: tuple[float, float] = (0.0, 0.0)
    _last: tuple[float, float] = (0.0, 0.0)
    _pairs: list[float] = field(default_factory=lambda: [0.0] * 6)

    def add(self, x: float, y: float) -> None:
        """One more point (means and co-moments: exact enough for millions)."""
        self._pair(x, y)
        self.seen += 1
        dx, dy = x - self._x, y - self._y
        self._x += dx / self.seen
        self._y += dy / self.seen
        self._xx += dx * (x - self._x)
        self._xy += dx * (y - self._y)
        self._yy += dy * (y - self._y)

    @property
    def mean(self) -> float:
        """Of the times."""
        return self._y

    @property
    def slope(self) -> float | None:
        """What one token more costs; None while there is too little to tell."""
        return self._xy / self._xx if self.seen >= LEAST_STEPS and self._xx > 0 else None

    def _pair(self, x: float, y: float) -> None:
        """Sums over neighbours, of distances from the first point."""
        if not self.seen:
            self._first = (x, y)
        u, v = x - self._first[0], y - self._first[1]
        if self.seen:
            before, after = self._last, (u, v)
            more = (
                *(before[0] + after[0], before[1] + after[1]),
                *(before[0] * after[0], before[1] * after[1]),
                before[0] * after[1] + before[1] * after[0],
                1.0,
            )
            self._pairs = [a + b for a, b in zip(self._pairs, more, strict=True)]
        self._last = (u, v)

    @property
    def slope_error(self) -> float | None:
        """Standard error of the slope: what the scatter of the points leaves open. Neighbours that
        are alike (r: their correlation) tell less than as many on their own: the variance is
        (1 + r) / (1 - r) times the textbook's."""
        slope = self.slope
        if slope is None:
            return None
        left = max(self._yy - slope * self._xy, 0.0)
        alike = min(max(self._likeness(slope, left), 0.0), _MOST_ALIKE)
        return math.sqrt((1 + alike) / (1 - alike) * left / (self.seen - 2) / self._xx)

    def _likeness(self, slope: float, left: float) -> float:
        """Correlation of what the line leaves of a point with what it leaves of the next."""
        if left <= _NOTHING * self._yy:
            return 0.0
        at = (self._y - self._first[1]) - slope * (self._x - self._first[0])
        us, vs, uu, vv, uv, pairs = self._pairs
        together = vv - at * vs - slope * uv + at * at * pairs + at * slope * us + slope**2 * uu
        likeness = together / left
        # From few points it comes out too low, around a line by this much.
        return likeness + (2 + 4 * likeness) / self.seen

    @property
    def constant(self) -> float | None:
        """What a step costs at any length."""
        slope = self.slope
        return None if slope is None else self._y - slope * self._x


def curve_between(points: Sequence[tuple[float, float]], count: int) -> list[tuple[float, float]]:
    """`count` places on a derived curve from the shortest to the longest of the points.

    Least squares of a + b n + c n^2 (of a + b n where only two lengths were measured); empty below
    two. Nothing is said of lengths beyond the points.
    """
    lengths = sorted({x for x, _ in points})
    if len(lengths) < 2 or count < 2:
        return []
    low, high = lengths[0], lengths[-1]
    scale = high - low
    rows = [((x - low) / scale, y) for x, y in points]
    factors = _solve(rows, min(len(lengths), 3))
    places = [k / (count - 1) for k in range(count)]
    return [(low + u * scale, sum(f * u**k for k, f in enumerate(factors))) for u in places]


def _solve(rows: Sequence[tuple[float, float]], terms: int) -> list[float]:
    """The normal equations, by elimination: three unknowns at most, u within 0 to 1."""
    matrix = [
        [sum(u ** (i + j) for u, _ in rows) for j in range(terms)]
        + [sum(y * u**i for u, y in rows)]
        for i in range(terms)
    ]
    for i in range(terms):
        pivot = max(range(i, terms), key=lambda k: abs(matrix[k][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for k in range(terms):
            if k != i:
                factor = matrix[k][i] / matrix[i][i]
                matrix[k] = [a - factor * b for a, b in zip(matrix[k], matrix[i], strict=True)]
    return [matrix[i][terms] / matrix[i][i] for i in range(terms)]
