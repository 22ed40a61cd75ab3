"""The sampler's rules in plain Python: what the scripted engine uses and faster code is held to.

Order and filters as the contract says; float64 throughout. Knows one row of logits and nothing of
where it comes from. Made for small vocabularies.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from engine_daemon.protocol.values import DroppedBy, Sampler


@dataclass(frozen=True, slots=True)
class Filtered:
    """A row after the sampler. `order`: kept ids in the sampler's order, `bounds` the running sum
    of their probabilities. `final_logprobs` and `dropped_by` have one entry an id."""

    order: list[int]
    bounds: list[float]
    final_logprobs: list[float]
    dropped_by: list[DroppedBy]

    def pick(self, u: float) -> int:
        """The first id whose running sum exceeds `u`."""
        return self.order[min(bisect_right(self.bounds, u), len(self.order) - 1)]

    def before(self, token_id: int) -> float:
        """Where the interval of a kept id begins."""
        place = self.order.index(token_id)
        return self.bounds[place - 1] if place else 0.0


def has_penalties(sampler: Sampler) -> bool:
    """True when the outcome depends on the ids that came before."""
    return (
        sampler.repetition_penalty != 1.0
        or sampler.presence_penalty != 0.0
        or sampler.frequency_penalty != 0.0
    )


def in_order(logits: Sequence[float]) -> list[int]:
    """Ids by logit descending, then id ascending."""
    return sorted(range(len(logits)), key=lambda i: -logits[i])


def logsumexp(values: Sequence[float]) -> float:
    """Natural; the largest value comes out first, so nothing overflows."""
    top = max(values)
    return top + math.log(math.fsum(math.exp(value - top) for value in values))


def penalised(logits: Sequence[float], sampler: Sampler, path: Sequence[int]) -> list[float]:
    """The row after repetition, presence and frequency penalties over the ids in `path`."""
    row = list(logits)
    if not has_penalties(sampler):
        return row
    factor = sampler.repetition_penalty
    for token_id, count in Counter(i for i in path if i < len(row)).items():
        value = row[token_id]
        value = value / factor if value > 0 else value * factor
        row[token_id] = value - sampler.presence_penalty - sampler.frequency_penalty * count
    return row


def filtered(logits: Sequence[float], sampler: Sampler, path: Sequence[int]) -> Filtered:
    """Penalties → temperature → top-k → top-p → min-p → mask, or the greedy pick."""
    row = penalised(logits, sampler, path)
    order = in_order(row)
    dropped = [DroppedBy.KEPT] * len(row)
    if sampler.is_greedy:
        for i in order[1:]:
            dropped[i] = DroppedBy.GREEDY
        return _finished(order[:1], [0.0], dropped)
    scaled = [row[i] / sampler.temperature for i in order]
    for kept_by, reason in _FILTERS:
        count = kept_by(scaled, sampler)
        for i in order[count:]:
            dropped[i] = reason
        del order[count:], scaled[count:]
    return _finished(order, scaled, dropped)


def _finished(order: list[int], scaled: list[float], dropped: list[DroppedBy]) -> Filtered:
    total = logsumexp(scaled)
    final = [-math.inf] * len(dropped)
    for i, value in zip(order, scaled, strict=True):
        final[i] = value - total
    bounds = list(accumulate(math.exp(value - total) for value in scaled))
    return Filtered(order, bounds, final, dropped)


def _top_k(scaled: Sequence[float], sampler: Sampler) -> int:
    if not 0 < sampler.top_k < len(scaled):
        return len(scaled)
    last = scaled[sampler.top_k - 1]
    return sum(value >= last for value in scaled)


def _top_p(scaled: Sequence[float], sampler: Sampler) -> int:
    if sampler.top_p >= 1.0:
        return len(scaled)
    total = logsumexp(scaled)
    mass = accumulate(math.exp(value - total) for value in scaled)
    reached = (place for place, so_far in enumerate(mass, 1) if so_far >= sampler.top_p)
    return next(reached, len(scaled))


def _min_p(scaled: Sequence[float], sampler: Sampler) -> int:
    if sampler.min_p <= 0.0:
        return len(scaled)
    least = scaled[0] + math.log(sampler.min_p)
    return max(1, sum(value >= least for value in scaled))


def _mask(scaled: Sequence[float], sampler: Sampler) -> int:
    return sum(value > -math.inf for value in scaled)


_Filter = Callable[[Sequence[float], Sampler], int]
_FILTERS: Final[tuple[tuple[_Filter, DroppedBy], ...]] = (
    (_top_k, DroppedBy.TOP_K),
    (_top_p, DroppedBy.TOP_P),
    (_min_p, DroppedBy.MIN_P),
    (_mask, DroppedBy.MASK),
)
"""Each says how many of the ordered values stay; the next sees only those."""
