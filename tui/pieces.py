"""Pieces of generated tokens as they are shown, with a mark where nobody knows the token any more.

Knows rows; no colours and no widgets.
"""

from typing import Final

from engine_daemon.recording.rows import NO_ID, Rows

UNKNOWN: Final = "‹?›"
"""Stands where a damaged recording lost a token: what is before and after it is not one text."""


def piece_or_mark(rows: Rows, step: int) -> bytes:
    """The bytes that name the token of this step; the mark of one that is lost."""
    return UNKNOWN.encode() if rows.ids[step] == NO_ID else rows.piece(step)
