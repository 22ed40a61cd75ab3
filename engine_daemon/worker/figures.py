"""What is the same of a row of logits under every sampler: entropy, logsumexp, the mass by rank.

Knows one row and its order; no samplers, models or sessions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from engine_daemon.errors import Exit, InspectError
from engine_daemon.worker.levels import Levels
from engine_daemon.worker.order import Desk, Order

_FAR_BELOW: Final = -1e4
"""exp() of it is 0 in fp32; stands in for -inf, which times 0 would be NaN."""


@dataclass(frozen=True, slots=True)
class Figures:
    """`total` is the sum of exp(logit - `top`) over the row, `head` these weights of the first
    ids in order and `rest` the sum of all others, on its own: beside the first it would drown."""

    top: float
    total: float
    logsumexp: float
    entropy_bits: float
    head: list[float]
    rest: float

    def outside(self, values: Sequence[float]) -> float:
        """The share of the mass that the first ids, whose logits these are, do not have."""
        known = len(self.head)
        left = self.rest + sum(self.head[len(values) :])
        left -= sum(math.exp(value - self.top) for value in values[known:])
        return max(0.0, left) / self.total


def figures(order: Order, desk: Desk | None = None) -> Figures:
    """Figures of an ordered row. InspectError (`engine`) when it holds NaN, +inf or nothing at all.

    `desk`: where a row in host memory lies.
    """
    _check(order.values[0])
    weighed = weighed_there(order) if desk is None else weighed_here(order, desk)
    return _figures(order.values, *weighed)


def figures_of(levels: Levels, order: Order) -> Figures:
    """The same from a row's distinct values, in float64."""
    top = float(levels.values[0])
    _check(top)
    shifted = (levels.values - top).clamp_(min=_FAR_BELOW)
    weights = shifted.exp().mul_(levels.counts)
    head = [math.exp(value - top) for value in order.values]
    rest = float(weights.sum()) - math.fsum(head)
    return _figures(order.values, head, rest, float(torch.dot(shifted, weights)))


def weighed_here(order: Order, desk: Desk) -> tuple[list[float], float, float]:
    """Weights of the first ids, the sum of all others', and that of all times their distance from
    the first."""
    shifted, weights = desk.shifted, desk.weights
    np.subtract(desk.row, np.float32(order.values[0]), out=shifted)
    np.exp(shifted, out=weights)
    if not np.isfinite(np.minimum.reduce(shifted)):  # -inf times 0; NaN shows in the sums
        np.maximum(shifted, _FAR_BELOW, out=shifted)
    weighted = float(np.add.reduce(np.multiply(shifted, weights, out=shifted)))
    head: list[float] = weights[order.ids].tolist()
    weights[order.ids] = 0
    return head, float(np.add.reduce(weights)), weighted


def weighed_there(order: Order) -> tuple[list[float], float, float]:
    """The same of a row on a device, with one transfer."""
    ids = order.first(len(order.ids))
    shifted = torch.sub(order.row, order.values[0]).clamp_(min=_FAR_BELOW)
    weights = shifted.exp()
    weighted, head = torch.dot(shifted, weights), weights[ids]
    weights[ids] = 0
    *first, rest, mean = torch.cat([head, torch.stack([weights.sum(), weighted])]).tolist()
    return first, rest, mean


def _figures(values: Sequence[float], head: list[float], rest: float, weighted: float) -> Figures:
    total = rest + math.fsum(head)
    _check(total)
    entropy = max(0.0, math.log(total) - weighted / total) / math.log(2.0)
    return Figures(values[0], total, values[0] + math.log(total), entropy, head, max(0.0, rest))


def _check(number: float) -> None:
    if not math.isfinite(number):
        raise InspectError(
            "the model produced a NaN or infinite logit",
            "The weights may be damaged; fp16 overflows where bf16 does not (--dtype)",
            exit_code=Exit.ENGINE,
            code="engine",
        )
