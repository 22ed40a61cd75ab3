"""How often children were started, and whether one that ended is worth another start.

Knows a file and a clock; starts nothing.
"""

import time
from collections import deque
from pathlib import Path
from typing import Final

RESTARTS: Final = 3
RESTART_WINDOW_S: Final = 600.0


class Restarts:
    """Of one daemon. `counter`: the file that counts starts of the worker under this name."""

    def __init__(self, counter: Path) -> None:
        self._counter = counter
        self._times: dict[str, deque[float]] = {}

    def number(self) -> int:
        """The number of the start that comes now."""
        try:
            count = int(self._counter.read_text()) + 1
        except (OSError, ValueError):
            count = 1
        self._counter.write_text(f"{count}\n")
        return count

    def may(self, module: str) -> bool:
        """It ended: may it be started again? At most three times in ten minutes."""
        now = time.monotonic()
        times = self._times.setdefault(module, deque())
        while times and now - times[0] > RESTART_WINDOW_S:
            times.popleft()
        times.append(now)
        return len(times) <= RESTARTS
