"""Texts of tokens for a page: every character visible, glyphs of several tokens whole.

Knows bytes and characters; escaping for markup is the page's matter.
"""

import codecs
from collections.abc import Iterator, Sequence
from typing import Final

from engine_daemon.characters import Visible, undecodable

_MOST_PARTS: Final = 4
"""Tokens that the bytes of one character can come in."""


class _Running(Visible):
    """Running text: a line break shows as a mark and breaks the line."""

    def __init__(self) -> None:
        super().__init__()
        self[0x0A], self[0x09] = "⏎\n", "⇥\t"


class _Cell(Visible):
    """One token in a line: spaces show too."""

    def __init__(self) -> None:
        super().__init__()
        self[0x0A], self[0x09], self[0x20] = "⏎", "⇥", "␣"


_LINE: Final = Visible()
_RUNNING: Final = _Running()
_CELL: Final = _Cell()


def visible(text: str) -> str:
    """A name or a message in a line."""
    return text.translate(_LINE)


def cell(piece: bytes) -> str:
    """One token by itself; never empty."""
    return undecodable(piece.decode("utf-8", "surrogateescape")).translate(_CELL) or "∅"


def grouped(pieces: Sequence[tuple[bytes, bool]]) -> Iterator[str | None]:
    """What each token shows in running text, by piece and whether it is special.

    A glyph whose bytes come in several tokens shows at the first of them; the others are None.
    """
    at = 0
    while at < len(pieces):
        piece, special = pieces[at]
        end = at + 1 if special else _end(pieces, at)
        raw = piece if special else b"".join(part for part, _ in pieces[at:end])
        shown = undecodable(raw.decode("utf-8", "surrogateescape")).translate(_RUNNING)
        yield shown or ("∅" if special else "")
        yield from (None for _ in range(at + 1, end))
        at = end


def _end(pieces: Sequence[tuple[bytes, bool]], at: int) -> int:
    """The token after those that belong together."""
    raw = pieces[at][0]
    end = at + 1
    while _unfinished(raw):
        if end == len(pieces) or pieces[end][1] or end - at == _MOST_PARTS:
            return at + 1
        raw += pieces[end][0]
        end += 1
    return end if _whole(raw) else at + 1


def _unfinished(raw: bytes) -> bool:
    """It ends inside a character that more bytes could finish."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(raw)
    return bool(decoder.getstate()[0])


def _whole(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
