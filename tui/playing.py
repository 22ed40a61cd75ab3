"""A replay in time: how long each recorded step took, and which one it is time for.

Knows columns and seconds; no screen and no timer.
"""

from array import array
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from engine_daemon.recording.columns import Columns

SPEEDS: Final = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
"""Times the recorded speed."""
NORMAL: Final = 1.0


def span_ms(columns: Columns, step: int) -> float:
    """What a step took, other sessions' turns included; what people waited is no part of it."""
    spent = columns.total_ms[step]
    if spent != spent:  # lost: nobody knows
        return 0.0
    waited = columns.waited_ms[step]
    return spent + (waited if waited == waited else 0.0)


class Clock:
    """Which step it is time for, from the one it was set to on."""

    def __init__(self) -> None:
        self._step = 0
        self._since = 0.0

    def set(self, step: int, now: float) -> None:
        """It is `step` now (seconds of a monotonic clock)."""
        self._step, self._since = step, now

    def due(self, columns: Columns, head: int, speed: float, now: float) -> int:
        """The step to show now, `head` at most; time that is left over counts for the next."""
        left = (now - self._since) * 1000 * speed
        while self._step < head:
            span = self._span(columns)
            if span > left:
                break
            left -= span
            self._step += 1
        self._since = now if self._step >= head else now - left / 1000 / speed
        return self._step

    def wait_s(self, columns: Columns, head: int, speed: float, now: float) -> float | None:
        """Seconds until the next step; None at the head."""
        if self._step >= head:
            return None
        return max(self._since + self._span(columns) / 1000 / speed - now, 0.0)

    def _span(self, columns: Columns) -> float:
        """From the step that is shown to the next one; the pending one took a forward only."""
        coming = self._step + 1
        if coming < len(columns):
            return span_ms(columns, coming)
        pending = columns.pending
        return pending.forward_ms if pending is not None else 0.0


@dataclass(slots=True)
class Replay:
    """What a screen shows of a replay beside the recording.

    Attributes:
        name: the file's.
        reason: why nothing here can reach an engine.
        playing: steps follow each other by themselves, `speed` times as fast as recorded.
        veiled: what comes after the step that is shown is not shown yet.
        growing: somebody still writes the file.
        missing: events are lost.
    """

    name: str
    reason: str
    playing: bool = False
    speed: float = NORMAL
    veiled: bool = True
    growing: bool = False
    missing: bool = False

    def faster(self, places: int) -> None:
        """So many places up or down the table of speeds."""
        at = SPEEDS.index(self.speed) + places
        self.speed = SPEEDS[min(max(at, 0), len(SPEEDS) - 1)]


class Elapsed:
    """Seconds of decoding up to a step, summed once a path."""

    def __init__(self) -> None:
        self._of: object = None
        self._sums = array("d")

    def at(self, columns: Columns, step: int) -> float:
        """Up to and with `step`."""
        key = (id(columns), columns.turned)
        if key != self._of or len(self._sums) > len(columns):
            self._of, self._sums = key, array("d")
        known = len(self._sums)
        if known < len(columns):
            before = self._sums[-1] if known else 0.0
            spans = (span_ms(columns, k) / 1000 for k in range(known, len(columns)))
            self._sums.extend(list(accumulate(spans, initial=before))[1:])
        return self._sums[min(step, len(self._sums) - 1)] if self._sums and step >= 0 else 0.0
