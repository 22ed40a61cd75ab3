"""What a viewer gets next: batches cut from a log by credit and pace.

One path for live and catch-up. Knows no sockets and no commands.
"""

from dataclasses import dataclass
from typing import Final

from engine_daemon.hub.viewers import Following
from engine_daemon.protocol.codec import encode_body
from engine_daemon.protocol.commands import Batch
from engine_daemon.recording.writer import LogWriter

BATCH_BYTES: Final = 128 * 1024
"""Events in one batch; a single larger event goes alone."""
FRAME_S: Final = 1 / 30
"""A viewer at the head gets at most this many seconds' pace, leading edge."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A batch up to event `to`, as the body of its message."""

    to: int
    body: bytes


class Cuts:
    """The batches of one moment: each is read and encoded once for all viewers that get it."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int], Cut] = {}

    def at(self, start: int, session: str, log: LogWriter, durable: int) -> Cut:
        """The batch that begins with event `start`."""
        made = self._made.get((session, start))
        if made is None:
            events = log.read(start, log.head, BATCH_BYTES)
            to = start + len(events)
            batch = Batch(
                session=session, start=start, to=to, head=log.head, durable=durable, ev=events
            )
            made = self._made[session, start] = Cut(to, encode_body(batch))
        return made


def next_batch(
    following: Following, log: LogWriter, durable: int, now: float, cuts: Cuts
) -> Cut | float | None:
    """The batch to send now, or when (monotonic seconds) to look again, or None: nothing to do.

    None comes back when the viewer is at the head or out of credit; an `ack` or a new event is
    the time to ask again.
    """
    if following.next >= log.head:
        return None
    if following.snapshot or not following.has_credit:
        return None
    due = following.last_flush + FRAME_S
    if now < due and log.bytes_from(following.next) <= BATCH_BYTES:
        return due
    return cuts.at(following.next, following.session, log, durable)
