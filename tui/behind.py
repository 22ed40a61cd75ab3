"""How far what is on screen is behind the session: a slow link, or a viewer that cannot keep up.

Knows times and counts; nothing of sockets and widgets.
"""

from collections import deque
from typing import Final

BEHIND_S: Final = 1.0
"""What is shown is called behind when it is so old …"""
CAUGHT_UP_S: Final = 0.3
"""… until it is not older than this."""
EVENTS_A_STEP: Final = 2
_SAMPLES: Final = 256
_OTHER_CLOCK_S: Final = 60.0
_QUIET_S: Final = 1.5
"""Without an event for so long, the last one's lateness says nothing any more."""


class Behind:
    """Of one session. `events`: how many are known of that are not shown; `seconds`: how old what
    is shown is."""

    def __init__(self) -> None:
        self.events = 0
        self.seconds = 0.0
        self.shown = False
        self._heads: deque[tuple[float, int]] = deque(maxlen=_SAMPLES)
        self._least_s: float | None = None
        self._late_s = 0.0
        self._took = self._made_s = 0.0

    def heard(self, head: int, now: float) -> None:
        """So many events are in the log now."""
        if not self._heads or head > self._heads[-1][1]:
            self._heads.append((now, head))

    def took(self, made_s: float, now: float) -> None:
        """An event that was made at `made_s`, by a clock of its own, is shown from now on.

        The clocks differ by an amount that nobody knows; the least difference seen is taken for
        none. It tells when the link itself holds back what is said of the head, too.
        """
        if made_s < self._made_s - _OTHER_CLOCK_S:  # made before a machine was started anew
            self._least_s = None
        late, self._made_s = now - made_s, made_s
        self._least_s = late if self._least_s is None else min(self._least_s, late)
        self._late_s, self._took = late - self._least_s, now

    def look(self, next_event: int, now: float) -> bool:
        """Everything before `next_event` is shown; True when it is behind."""
        while self._heads and self._heads[0][1] <= next_event:
            self._heads.popleft()
        self.events = self._heads[-1][1] - next_event if self._heads else 0
        waits = now - self._heads[0][0] if self._heads else 0.0
        flows = bool(self.events) or now - self._took < _QUIET_S
        self.seconds = max(waits, self._late_s if flows else 0.0)
        self.shown = self.seconds > (CAUGHT_UP_S if self.shown else BEHIND_S)
        return self.shown

    @property
    def words(self) -> str:
        """`412 steps behind`; where only the time is known, that."""
        steps = self.events // EVENTS_A_STEP
        much = f"{steps} steps" if steps else f"{self.seconds:.0f} s"
        return f"{much} behind"
