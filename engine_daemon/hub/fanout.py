"""What a viewer gets next: batches cut from a log by credit and pace.

One path for live and catch-up. Knows no sockets and no commands.
"""

from typing import Final

from engine_daemon.hub.viewers import Following
from engine_daemon.protocol.commands import Batch
from engine_daemon.recording.writer import LogWriter

BATCH_BYTES: Final = 128 * 1024
"""Events in one batch; a single larger event goes alone."""
FRAME_S: Final = 1 / 30
"""A viewer at the head gets at most this many seconds' pace, leading edge."""


def next_batch(
    following: Following, log: LogWriter, durable: int, now: float
) -> Batch | float | None:
    """The batch to send now, or when (monotonic seconds) to look again, or None: nothing to do.

    None comes back when the viewer is at the head or out of credit; an `ack` or a new event is
    the time to ask again.
    """
    if following.next >= log.head:
        return None
    if following.snapshot or not following.has_credit:
        return None
    events = log.read(following.next, log.head, BATCH_BYTES)
    to = following.next + len(events)
    due = following.last_flush + FRAME_S
    if to == log.head and now < due:
        return due
    return Batch(
        session=following.session,
        start=following.next,
        to=to,
        head=log.head,
        durable=durable,
        ev=events,
    )
