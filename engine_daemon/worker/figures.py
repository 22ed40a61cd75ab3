"""What is the same of a row of logits under every sampler: entropy, logsumexp, the mass by rank.

Knows one row and its order; no samplers, models or sessions.
"""

import math
from operator import mul
from typing import Final

import msgspec
import numpy as np
import torch

from engine_daemon.errors import Exit, InspectError
from engine_daemon.worker.levels import Levels
from engine_daemon.worker.order import Desk, Order

_FAR_BELOW: Final = -1e4
"""exp() of it is 0 in fp32; stands in for -inf, which times 0 would be NaN."""


class Figures(msgspec.Struct, frozen=True):
    """`total` is the sum of exp(logit - `top`) over the row, `head` these weights of the first
    ids in order and `rest` the sum of all others: beside the first it would drown."""

    top: float
    total: float
    logsumexp: float
    entropy_bits: float
    head: list[float]
    rest: float

    def outside(self, order: Order, k: int) -> float:
        """The share of the mass that the first `k` ids of the order do not have. Summed as it is:
        a difference of sums would be noise where it is small."""
        if k <= len(self.head):
            return (self.rest + math.fsum(self.head[k:])) / self.total
        weights = order.row.double().sub_(self.top).exp_()
        weights[order.first(k)] = 0.0
        return float(weights.sum()) / self.total


def figures(order: Order, desk: Desk | None = None) -> Figures:
    """Figures of an ordered row. InspectError (`engine`) when it holds NaN, +inf or nothing at all.

    `desk`: where a row in host memory lies.
    """
    _check(order.values[0])
    rest, weighted = others_there(order) if desk is None else others_here(order, desk)
    head, of_head = _head(order)
    return _figures(order, head, rest, weighted + of_head)


def figures_of(levels: Levels, order: Order) -> Figures:
    """The same from a row's distinct values, in float64."""
    top = float(levels.values[0])
    _check(top)
    shifted = (levels.values - top).clamp_(min=_FAR_BELOW)
    weights = shifted.exp().mul_(levels.counts)
    head, _ = _head(order)
    rest = float(weights.sum()) - math.fsum(head)
    return _figures(order, head, rest, float(torch.dot(shifted, weights)))


def others_here(order: Order, desk: Desk) -> tuple[float, float]:
    """The weights of all but the first ids together, and these times the distance from the first,
    of a row in host memory. It is on the desk no longer then."""
    shifted, weights = desk.row, desk.weights
    np.subtract(shifted, np.float32(order.values[0]), out=shifted)
    shifted[order.index] = _FAR_BELOW
    np.exp(shifted, out=weights)
    rest = float(np.add.reduce(weights))
    # Of all products this one alone says NaN, of a masked token (-inf times 0), without a warning.
    weighted = float(np.vdot(shifted, weights))
    if math.isnan(weighted):
        weighted = float(np.vdot(np.maximum(shifted, _FAR_BELOW, out=shifted), weights))
    return rest, weighted


def others_there(order: Order) -> tuple[float, float]:
    """The same of a row on a device, with one transfer."""
    shifted = torch.sub(order.row, order.values[0]).clamp_(min=_FAR_BELOW)
    shifted[order.first(len(order.ids))] = _FAR_BELOW
    weights = shifted.exp()
    rest, weighted = torch.stack([weights.sum(), torch.dot(shifted, weights)]).tolist()
    return rest, weighted


def _head(order: Order) -> tuple[list[float], float]:
    """The weights of the first ids, and their sum times the distance from the first."""
    top = order.values[0]
    shifted = [value - top for value in order.values]
    if shifted[-1] < _FAR_BELOW:
        shifted = [max(x, _FAR_BELOW) for x in shifted]
    head = list(map(math.exp, shifted))
    return head, sum(map(mul, shifted, head))


def _figures(order: Order, head: list[float], rest: float, weighted: float) -> Figures:
    top = order.values[0]
    total = rest + math.fsum(head)
    _check(total)
    entropy = max(0.0, math.log(total) - weighted / total) / math.log(2.0)
    return Figures(top, total, top + math.log(total), entropy, head, max(0.0, rest))


def _check(number: float) -> None:
    if not math.isfinite(number):
        raise InspectError(
            "the model produced a NaN or infinite logit",
            "The weights may be damaged; fp16 overflows where bf16 does not (--dtype)",
            exit_code=Exit.ENGINE,
            code="engine",
        )
