"""A prompt's columns as rows. Knows the columns' form; nothing of events and sessions."""

from collections.abc import Iterator, Sequence
from typing import Final, overload

from engine_daemon.protocol.packing import cuts, unpack_ints
from engine_daemon.protocol.values import PromptToken

NO_OFFSET: Final = 0xFFFFFFFF
"""In `PromptSet.starts`/`ends`: normalisation leaves no place in the text for this token."""


class PromptTokens(Sequence[PromptToken]):
    """Rows that are made when they are looked at: of 100,000 tokens a screen shows forty.

    Takes the columns of `PromptSet`, of no prompt none; ValueError when they do not fit each other.
    """

    def __init__(
        self,
        ids: bytes = b"",
        special: bytes = b"",
        added: bytes = b"",
        starts: bytes = b"",
        ends: bytes = b"",
        piece_len: bytes = b"",
        pieces: bytes = b"",
    ) -> None:
        self._ids = unpack_ints("I", ids)
        self._special, self._added = special, added
        self._starts, self._ends = unpack_ints("I", starts), unpack_ints("I", ends)
        self._cuts = cuts(pieces, unpack_ints("H", piece_len))
        self._pieces = pieces
        columns = (self._special, self._added, self._starts, self._ends, self._cuts[1:])
        if any(len(column) != len(self._ids) for column in columns):
            raise ValueError("the columns of the prompt differ in length")

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> PromptToken: ...
    @overload
    def __getitem__(self, index: slice) -> list[PromptToken]: ...
    def __getitem__(self, index: int | slice) -> PromptToken | list[PromptToken]:
        places = range(len(self._ids))[index]
        return self._row(places) if isinstance(places, int) else [self._row(k) for k in places]

    def __iter__(self) -> Iterator[PromptToken]:
        return map(self._row, range(len(self._ids)))

    def shown(self, index: int) -> tuple[bytes, bool]:
        """Piece, and whether it is special or added: what a text of tokens needs, at half the cost
        of a row."""
        piece = self._pieces[self._cuts[index] : self._cuts[index + 1]]
        return piece, bool(self._special[index] or self._added[index])

    def _row(self, index: int) -> PromptToken:
        start, end = self._starts[index], self._ends[index]
        return PromptToken(
            self._ids[index],
            self._pieces[self._cuts[index] : self._cuts[index + 1]],
            bool(self._special[index]),
            bool(self._added[index]),
            None if start == NO_OFFSET else start,
            None if end == NO_OFFSET else end,
        )
