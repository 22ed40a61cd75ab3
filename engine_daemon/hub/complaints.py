"""What was refused at the viewers' socket, in the log: enough to see it, never enough to fill a
disk. Knows no sockets.
"""

import logging
from typing import Final

MOST: Final = 20
"""Lines in a period; what comes beyond is counted."""
PERIOD_S: Final = 60.0
LONGEST: Final = 200
"""Characters of a line that others may choose."""

_log = logging.getLogger(__name__)


class Complaints:
    """Says what was refused, at most `MOST` times in `PERIOD_S`, and then how often besides."""

    def __init__(self) -> None:
        self._since = 0.0
        self._said = 0
        self._unsaid = 0

    def say(self, code: str, message: str, now: float) -> None:
        """A message was refused."""
        self.look(now)
        if self._said < MOST:
            self._said += 1
            _log.info("refused: %s %s", code, message[:LONGEST])
        else:
            self._unsaid += 1

    def look(self, now: float) -> None:
        """The period may be over."""
        if now - self._since < PERIOD_S:
            return
        if self._unsaid:
            _log.info("refused: %d more", self._unsaid)
        self._since, self._said, self._unsaid = now, 0, 0
