"""Tells numbers that are far above those around them: a step during which the machine stood still.

Such a step says nothing of what a step costs, and one of them would rule an axis and a fit. Knows
numbers only.
"""

from collections import deque
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from typing import Final, Literal

FAR: Final = 4.0
"""Times the median of the steps around it, from which on a step is far off."""
LEAST: Final = 8
"""Steps that are judged together first: before them nothing says what is ordinary."""
_FEWEST: Final = 3
_AROUND: Final = 32
"""Steps, far off or not, whose median counts: when the cost itself changes, it follows."""
_REFRESH: Final = 8
_MOST_WAITING: Final = 256
"""Points that wait for a judgement: of a session that is stepped by hand no point is plain."""


Kind = Literal["plain", "pause", "other"]
"""Plain ones say what is ordinary; those after a pause are judged by it; others are not."""


@dataclass(frozen=True, slots=True)
class Point:
    """`far`: it is far above the plain ones around it."""

    x: float
    y: float
    kind: Kind
    far: bool = False


class Sieve:
    """Points in order."""

    def __init__(self) -> None:
        self._first: list[Point] = []
        self._plain: list[float] = []
        self._around: deque[float] = deque(maxlen=_AROUND)
        self._limit = inf
        self._since = 0

    def add(self, x: float, y: float, kind: Kind = "plain") -> list[Point]:
        """The points that are judged now: none, the first few together, or this one."""
        if len(self._around) >= LEAST:
            return [self._judge(Point(x, y, kind))]
        self._first.append(Point(x, y, kind))
        if kind == "plain":
            self._plain.append(y)
        if len(self._plain) >= LEAST:
            judged, self._first = self.first(), []
            self._around.extend(self._plain)
            self._look()
            return judged
        if len(self._first) > _MOST_WAITING:  # they count as what they look like now
            judged, self._first = self.first(), []
            return judged
        return []

    def first(self) -> list[Point]:
        """Those that are not judged for good yet, as they look so far."""
        limit = FAR * median(self._plain) if len(self._plain) >= _FEWEST else inf
        return [replace(one, far=one.kind != "other" and one.y > limit) for one in self._first]

    def _judge(self, point: Point) -> Point:
        far = point.kind != "other" and point.y > self._limit
        if point.kind == "plain":
            self._around.append(point.y)
            self._since += 1
            if far or self._since >= _REFRESH:
                self._look()
        return replace(point, far=True) if far else point

    def _look(self) -> None:
        self._limit, self._since = FAR * median(self._around), 0
