"""A growing series kept as a bounded number of means: what a plot needs of 100 000 steps.

Knows numbers only.
"""

from typing import Final

_LIMIT: Final = 512


class Curve:
    """Points (x, y) in order of x; when there are too many, neighbours become one mean."""

    def __init__(self) -> None:
        self.seen = 0
        self._each = 1
        self._buckets: list[tuple[float, float, int]] = []

    def add(self, x: float, y: float) -> None:
        """One more point; x does not go back."""
        self.seen += 1
        if self._buckets and self._buckets[-1][2] < self._each:
            sx, sy, n = self._buckets[-1]
            self._buckets[-1] = (sx + x, sy + y, n + 1)
            return
        if len(self._buckets) >= _LIMIT:
            self._halve()
        self._buckets.append((x, y, 1))

    def _halve(self) -> None:
        self._each *= 2
        pairs = zip(self._buckets[::2], self._buckets[1::2], strict=True)
        self._buckets = [(ax + bx, ay + by, an + bn) for (ax, ay, an), (bx, by, bn) in pairs]

    def xs(self) -> list[float]:
        """Mean x of each bucket."""
        return [x / n for x, _, n in self._buckets]

    def ys(self) -> list[float]:
        """Mean y of each bucket."""
        return [y / n for _, y, n in self._buckets]

    @property
    def each(self) -> int:
        """How many points one mean stands for."""
        return self._each
