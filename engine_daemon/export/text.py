"""Bytes of tokens as text for people (CONTRACT: `text` and `done.text`).

Loses nothing: what is no UTF-8 shows as hexadecimal. Not safe for a terminal as it is: control
characters stay what they are, the screen and the command map them.
"""

import re
from collections.abc import Iterable
from typing import Final

_UNDECODED: Final = re.compile("[\udc80-\udcff]+")
_EMPTY: Final = "<empty>"


def final_text(pieces: Iterable[bytes]) -> str:
    """The pieces joined and decoded; bytes that are not UTF-8 as `<E2 98>`."""
    decoded = b"".join(pieces).decode("utf-8", "surrogateescape")
    return _UNDECODED.sub(_hexadecimal, decoded)


def readable(piece: bytes) -> str:
    """One token for people: as `final_text`, never empty."""
    return final_text([piece]) or _EMPTY


def _hexadecimal(run: re.Match[str]) -> str:
    raw = run.group().encode("utf-8", "surrogateescape")
    return f"<{raw.hex(' ').upper()}>"
