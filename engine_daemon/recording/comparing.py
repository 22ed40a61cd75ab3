"""Two recordings side by side: as long as their ids are the same, how far their numbers are apart.

Compares what the model said, never how long it took. Knows recordings; prints nothing.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from engine_daemon.protocol.codec import WireError, unpack_event
from engine_daemon.protocol.events import Predicted, UnknownEvent
from engine_daemon.protocol.values import CandidateRow
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.reader import Recording
from engine_daemon.recording.rows import NO_ID, NO_SEQ, exp

TOLERANCE: Final = 1e-3
COARSE_TOLERANCE: Final = 0.05
"""Where a side computed in bf16."""


@dataclass(frozen=True, slots=True)
class Apart:
    """The distributions of one step. `delta`: the largest |Δprob| (raw) of a shared candidate,
    which is `piece`; `kl_bits`: A relative to B over the shared ones, renormalised."""

    step: int
    shared: int
    delta: float
    id: int
    piece: bytes
    prob_a: float
    prob_b: float
    kl_bits: float


@dataclass(frozen=True, slots=True)
class Pick:
    """What one side picked where they part. `margin`: of its distribution, first less second;
    None for what is lost, or where the side ends."""

    id: int | None
    piece: bytes
    prob: float | None
    rank: int | None
    margin: float | None


@dataclass(frozen=True, slots=True)
class Side:
    """One recording, folded, and its distributions by step of the path it stands on."""

    recording: Recording
    columns: Columns

    @classmethod
    def of(cls, recording: Recording) -> "Side":
        """Fold it."""
        return cls(recording, recording.columns())

    @property
    def coarse(self) -> bool:
        """It was computed in bf16."""
        engine = self.columns.engine
        return engine is not None and engine.model.dtype == "bf16"

    def predicted(self, step: int) -> Predicted | None:
        """The distribution of a step; None where it is lost or not there."""
        columns = self.columns
        if step == len(columns):
            return columns.pending
        if step > len(columns) or columns.seq_predicted[step] == NO_SEQ:
            return None
        packed = self.recording.event(columns.seq_predicted[step])
        try:
            event = UnknownEvent("") if packed is None else unpack_event(packed)
        except WireError:
            return None
        return event if isinstance(event, Predicted) else None

    def pick(self, step: int) -> Pick:
        """What it picked there."""
        columns, predicted = self.columns, self.predicted(step)
        margin = None if predicted is None else predicted.margin
        if step >= len(columns) or columns.ids[step] == NO_ID:
            return Pick(None, b"", None, None, margin)
        prob = columns.prob[step]
        return Pick(
            columns.ids[step],
            columns.piece(step),
            None if math.isnan(prob) else prob,
            columns.rank[step] or None,
            margin,
        )


class Comparison:
    """What two recordings have in common, and where they part.

    Attributes:
        tolerance: the largest |Δprob| that is no difference.
        prompt_at: the first prompt token that differs; None when the prompts are the same.
        common: steps from the first on that have the same id (a lost one counts as the same).
        parts: the step at which they part, one of them perhaps because it ends; None: nowhere.
    """

    def __init__(self, a: Side, b: Side, tolerance: float | None = None) -> None:
        self.a, self.b = a, b
        coarse = a.coarse or b.coarse
        usual = COARSE_TOLERANCE if coarse else TOLERANCE
        self.tolerance = usual if tolerance is None else tolerance
        self.prompt_at = _first_difference(a.columns.prompt_ids, b.columns.prompt_ids)
        pairs = zip(a.columns.ids, b.columns.ids, strict=False)
        same = takewhile(lambda pair: pair[0] == pair[1] or NO_ID in pair, pairs)
        self.common = sum(1 for _ in same) if self.prompt_at is None else 0
        ends = self.common == len(a.columns) == len(b.columns)
        self.parts = None if ends or self.prompt_at is not None else self.common

    @property
    def same_tokens(self) -> bool:
        """Ids mean the same on both sides, as far as the recordings tell."""
        engines = self.a.columns.engine, self.b.columns.engine
        names = [engine.tokenizer_id for engine in engines if engine is not None]
        return len(set(names)) < 2

    def steps(self) -> Iterator[Apart]:
        """Every step whose distributions are there on both sides and have the same past: those in
        common, and the one at which they part (or stand)."""
        if self.prompt_at is not None:
            return
        for step in range(self.common + 1):
            p, q = self.a.predicted(step), self.b.predicted(step)
            found = None if p is None or q is None else _apart(step, p, q)
            if found is not None:
                yield found


def _first_difference(a: list[int], b: list[int]) -> int | None:
    for k, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return k
    return None if len(a) == len(b) else min(len(a), len(b))


def _apart(step: int, p: Predicted, q: Predicted) -> Apart | None:
    try:
        rows, others = p.candidates.rows(), {row.id: row for row in q.candidates.rows()}
    except ValueError:  # of a broken recording
        return None
    shared = [(row, _prob(row, p), _prob(others[row.id], q)) for row in rows if row.id in others]
    if not shared:
        return None
    row, prob_a, prob_b = max(shared, key=lambda one: abs(one[1] - one[2]))
    return Apart(
        step=step,
        shared=len(shared),
        delta=abs(prob_a - prob_b),
        id=row.id,
        piece=row.piece,
        prob_a=prob_a,
        prob_b=prob_b,
        kl_bits=_kl_bits([one[1] for one in shared], [one[2] for one in shared]),
    )


def _prob(row: CandidateRow, predicted: Predicted) -> float:
    return exp(row.logit - predicted.logsumexp)


def _kl_bits(p: list[float], q: list[float]) -> float:
    """Of p relative to q, each scaled to 1; infinite where q excludes what p has."""
    all_p, all_q = sum(p), sum(q)
    if not all_p or not all_q:
        return 0.0
    terms = [(x / all_p, y / all_q) for x, y in zip(p, q, strict=True) if x > 0]
    if any(y == 0 for _, y in terms):
        return math.inf
    return max(sum(x * math.log2(x / y) for x, y in terms), 0.0)
