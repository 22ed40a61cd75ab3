"""A running median: numbers go in, the median of all so far comes out. Knows numbers only."""

from bisect import insort
from collections.abc import Iterable


class RunningMedian:
    """Sorted all the time: a step costs a move of memory, which is small beside any forward."""

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._sorted = sorted(values)

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, value: float) -> None:
        """One more."""
        insort(self._sorted, value)

    def value(self) -> float:
        """The middle one, or the mean of the two in the middle."""
        count = len(self._sorted)
        half = count // 2
        if count % 2:
            return self._sorted[half]
        return (self._sorted[half - 1] + self._sorted[half]) / 2
