"""Least squares over recorded times: what a step costs at any length and what grows with it.

Derived numbers, always told apart from measured ones. Knows numbers only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LEAST_STEPS: Final = 8
"""Points from which on a line through them says anything."""


@dataclass(slots=True)
class LineFit:
    """ms = `constant` + `slope` x tokens, through points added one by one."""

    seen: int = 0
    _x: float = 0.0
    _y: float = 0.0
    _xx: float = 0.0
    _xy: float = 0.0
    _yy: float = 0.0

    def add(self, x: float, y: float) -> None:
        """One more point (means and co-moments: exact enough for millions)."""
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

    @property
    def slope_error(self) -> float | None:
        """Standard error of the slope: what the scatter of the points leaves open."""
        slope = self.slope
        if slope is None:
            return None
        left = max(self._yy - slope * self._xy, 0.0)
        return math.sqrt(left / (self.seen - 2) / self._xx)

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
