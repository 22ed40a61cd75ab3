"""The first candidates of a packed list, unpacked only as far as somebody looks.

A list may hold the whole vocabulary. Knows the packed columns; no colours and no widgets.
"""

import math
from collections.abc import Sequence
from typing import Final

from engine_daemon.protocol.packing import unpack_floats, unpack_ints
from engine_daemon.protocol.values import CandidateRow, Candidates

_FIRST: Final = 64
_SUMMED: Final = 2048
"""Candidates up to which they are summed one by one."""


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

    def beside(self, start: int, many: int, tail: float) -> float:
        """The probability of all that is not among so many rows from `start` on; `tail`: of what
        is not even in the list. Of a long list it is what the rows leave of 1."""
        if self.count > _SUMMED:
            return max(1.0 - math.fsum(map(self._prob, self._logits(start, many))), tail, 0.0)
        others = (*self._logits(0, start), *self._logits(start + many, self.count))
        return tail + math.fsum(map(self._prob, others))

    def _logits(self, start: int, many: int) -> Sequence[float]:
        return unpack_floats("f", self._packed.logit[4 * start : 4 * (start + many)])

    def _prob(self, logit: float) -> float:
        return math.exp(min(logit - self.logsumexp, 0.0))

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
