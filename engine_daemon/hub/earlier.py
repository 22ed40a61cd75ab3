"""Who led in a distribution that the engine is about to make again, as the log has it.

A sequence that is read anew gives numbers that differ a little in bf16; where two candidates are
close, the other one may lead. The worker is told who led, so that it can say when that changed.
"""

from engine_daemon.hub.sessions import Session
from engine_daemon.protocol.codec import WireError, unpack_event
from engine_daemon.protocol.events import Predicted
from engine_daemon.protocol.packing import unpack_ints
from engine_daemon.protocol.values import Leading
from engine_daemon.recording.writer import LogError


def earlier(session: Session) -> Leading | None:
    """Of the distribution at the end of the path that is stood on; None where none is known."""
    columns = session.columns
    if columns.pending is not None:
        return _leading(columns.pending)
    seq = columns.seq_left()
    if seq is None:
        return None
    try:
        found = unpack_event(session.log.read(seq, seq + 1, 1)[0][1])
    except (LogError, WireError):
        return None  # a comparison is no reason to refuse what was asked for
    return _leading(found) if isinstance(found, Predicted) else None


def _leading(predicted: Predicted) -> Leading | None:
    ids = unpack_ints("I", predicted.candidates.ids[:4])
    return Leading(id=ids[0], margin=predicted.margin) if ids else None
