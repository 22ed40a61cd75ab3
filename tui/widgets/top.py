"""The first candidates of a packed list, unpacked only as far as somebody looks.

A list may hold the whole vocabulary. Knows the packed columns; no colours and no widgets.
"""

from typing import Final

from engine_daemon.protocol.packing import unpack_ints
from engine_daemon.protocol.values import CandidateRow, Candidates

_FIRST: Final = 64


class Top:
    """Rows of a distribution by their place in the model's order."""

    def __init__(self, candidates: Candidates, logsumexp: float) -> None:
        self._packed = candidates
        self.logsumexp = logsumexp
        self.count = len(candidates.ids) // 4
        self._rows: list[CandidateRow] = []

    def rows(self, start: int, end: int) -> list[CandidateRow]:
        """Rows [start, end), as far as there are any."""
        end = min(end, self.count)
        if end > len(self._rows):
            self._rows = self._unpack(min(max(end, 2 * len(self._rows), _FIRST), self.count))
        return self._rows[start:end]

    def row(self, number: int) -> CandidateRow | None:
        """One row; None beyond the end."""
        found = self.rows(number, number + 1)
        return found[0] if found else None

    def find(self, token_id: int) -> int | None:
        """The place of an id; None when it is not among the candidates."""
        try:
            return unpack_ints("I", self._packed.ids).index(token_id)
        except ValueError:
            return None

    def _unpack(self, count: int) -> list[CandidateRow]:
        packed = self._packed
        if count == self.count:
            return packed.rows()
        size = sum(unpack_ints("H", packed.piece_len[: 2 * count]))
        return Candidates(
            ids=packed.ids[: 4 * count],
            logit=packed.logit[: 4 * count],
            final_logprob=packed.final_logprob[: 4 * count],
            dropped_by=packed.dropped_by[:count],
            special=packed.special[:count],
            piece_len=packed.piece_len[: 2 * count],
            pieces=packed.pieces[:size],
        ).rows()
