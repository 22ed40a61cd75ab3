"""What a late joiner gets first: the session folded, in parts, instead of a long log.

An image is made once for all who join at about the same time. Knows no sockets.
"""

from dataclasses import dataclass
from typing import Final

from engine_daemon.hub.sessions import Session

WORTH_BYTES: Final = 1024 * 1024
"""A shorter log is sent as it is."""
PART_BYTES: Final = 512 * 1024
FRESH_EVENTS: Final = 2000
"""An image this far behind the head is as good: the rest comes as events."""
KEEP_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Parts:
    """An image of everything before event `seq`, cut up."""

    seq: int
    parts: list[bytes]


class LateJoiners:
    """Images of sessions, kept for a moment."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[float, Parts]] = {}

    def parts(self, session: Session, now: float) -> Parts | None:
        """The image to start from; None where the log itself is as quick."""
        if session.log.size < WORTH_BYTES:
            return None
        _, known = self._made.get(session.id, (0.0, None))
        if known is None or session.log.head - known.seq > FRESH_EVENTS:
            image = session.columns.image()
            cut = range(0, len(image), PART_BYTES)
            known = Parts(session.columns.next, [image[at : at + PART_BYTES] for at in cut])
        self._made[session.id] = (now, known)
        return known

    def forget_old(self, now: float) -> None:
        """Give back the memory of those that nobody asked for lately."""
        for name, (used, _) in list(self._made.items()):
            if now - used > KEEP_S:
                del self._made[name]
