"""Marks of times that are no plain step's: the distribution was kept, or much was read again.

Knows numbers of a step; no colours and no widgets.
"""

from typing import Final

from engine_daemon.recording.rows import Flag

KEPT: Final = "°"
"""No forward ran: the logits were still held."""
READ_AGAIN: Final = "↻"
"""The forward read again what the cache did not hold any more."""
_RESTORED: Final = int(Flag.RESTORED)


def mark(step: int, processed: int, restored: bool) -> str:
    """The mark of a step whose forward read so many positions; empty for a plain one."""
    if not restored:
        return ""
    if processed == 0:
        return KEPT
    return READ_AGAIN if processed > 1 and step > 0 else ""


def mark_of_row(step: int, processed: int, flags: int) -> str:
    """The same from a row's columns."""
    return mark(step, processed, bool(flags & _RESTORED))
