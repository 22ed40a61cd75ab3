"""Least squares over recorded times: what a step costs at any length and what grows with it.

Derived numbers, always told apart from measured ones. Knows numbers only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

LEAST_STEPS: Final = 8
"""Points from which on a line through them says anything."""
_MOST_ALIKE: Final = 0.98
_NOTHING: Final = 1e-12
"""Of the scatter: less than that is rounding."""
LEAST_GROWTH: Final = 12
"""Points from which on a growth can be told."""
_MOST_BATCHES: Final = 24
_BLOCKS: Final = 6
_CLEARLY: Final = 3.0
"""Standard errors from which on a slope is one."""
_CLEARLY_OF_BLOCKS: Final = 4.6
"""The same from the means of six blocks: Student's t of 4 degrees of freedom, 1 % two-sided."""
_SHARE: Final = 0.4
"""Of the whole slope, that each part of the steps shows at least."""


class _Batch(NamedTuple):
    """Sums over a run of points, of distances u (tokens) and v (ms) from the first point of all."""

    many: int
    u: float
    v: float
    uu: float
    uv: float

    @property
    def slope(self) -> float:
        """Of a line through these points alone; 0 where they are at one place."""
        spread = self.uu - self.u * self.u / self.many
        return (self.uv - self.u * self.v / self.many) / spread if spread > 0 else 0.0


def _joined(batches: Sequence[_Batch]) -> _Batch:
    """All these runs as one."""
    many, *sums = map(sum, zip(*batches, strict=True))
    return _Batch(int(many), *sums)


@dataclass(slots=True)
class LineFit:
    """ms = `constant` + `slope` x tokens, through points added one by one, as they were measured.

    What a machine does beside (a clock that changes, another program) lasts for many steps, so the
    scatter of neighbours is alike. `_pairs` holds what the likeness of neighbours is told from;
    `_batches` runs of points of one length, 24 at most, from which parts of the whole are told.
    """

    seen: int = 0
    _x: float = 0.0
    _y: float = 0.0
    _xx: float = 0.0
    _xy: float = 0.0
    _yy: float = 0.0
    least: float = math.inf
    _first: tuple[float, float] = (0.0, 0.0)
    _last: tuple[float, float] = (0.0, 0.0)
    _pairs: list[float] = field(default_factory=lambda: [0.0] * 6)
    _batches: list[_Batch] = field(default_factory=list)
    _batch_size: int = 1

    def add(self, x: float, y: float) -> None:
        """One more point (means and co-moments: exact enough for millions)."""
        self._pair(x, y)
        self._collect(*self._last)
        self.seen += 1
        self.least = min(self.least, y)
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
    def reach(self) -> tuple[float, float]:
        """Tokens of the first and of the last point."""
        return self._first[0], self._first[0] + self._last[0]

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

    @property
    def error(self) -> float | None:
        """Standard error of the slope; where the means of blocks leave more open, that."""
        plain, slope = self.slope_error, self.slope
        if plain is None or slope is None:
            return None
        return max(plain, self._blocks_error(slope) or 0.0)

    @property
    def grows(self) -> bool:
        """Whether a token more costs more: clear of the scatter of points and of the scatter of
        whole blocks, and seen in each part of the points by itself. A machine that others use
        changes its pace from time to time: such a jump leans a line, but its parts stay flat."""
        slope, plain = self.slope, self.slope_error
        if self.seen < LEAST_GROWTH or slope is None or plain is None or slope <= 0:
            return False
        blocks = self._blocks_error(slope)
        if blocks is None or slope < max(_CLEARLY * plain, _CLEARLY_OF_BLOCKS * blocks):
            return False
        parts = self._parts(3 if self.seen < _MOST_BATCHES else 4)
        return all(part.slope >= _SHARE * slope for part in parts)

    def _collect(self, u: float, v: float) -> None:
        """One more point into the last batch; too many batches become half as many."""
        batches, one = self._batches, _Batch(1, u, v, u * u, u * v)
        if batches and batches[-1].many < self._batch_size:
            batches[-1] = _joined([batches[-1], one])
            return
        if len(batches) == _MOST_BATCHES:
            halves = zip(batches[::2], batches[1::2], strict=True)
            self._batches = batches = [_joined(pair) for pair in halves]
            self._batch_size *= 2
        batches.append(one)

    def _parts(self, count: int) -> list[_Batch]:
        """The points in order, in so many parts of about the same size."""
        some = len(self._batches)
        ends = [some * part // count for part in range(count + 1)]
        return [_joined(self._batches[a:b]) for a, b in pairwise(ends)]

    def _blocks_error(self, slope: float) -> float | None:
        """Standard error of the slope from how far the means of six blocks lie off the line; None
        while there are too few points."""
        if self.seen < LEAST_GROWTH:
            return None
        x, y = self._x - self._first[0], self._y - self._first[1]
        blocks = self._parts(_BLOCKS)
        left = sum(b.many * (b.v / b.many - y - slope * (b.u / b.many - x)) ** 2 for b in blocks)
        spread = sum(b.many * (b.u / b.many - x) ** 2 for b in blocks)
        if left <= _NOTHING * self._yy or spread <= 0:
            return 0.0
        return math.sqrt(left / (_BLOCKS - 2) / spread)

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
