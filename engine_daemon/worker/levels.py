"""The distinct values of a row of logits and how many tokens have each.

A row in 16 bits has few, so what a sampler asks of a whole vocabulary (its mass, where a running
sum passes a point) is asked of these instead, exactly. Knows no samplers and no order of ids.
"""

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

_NEGATIVE: Final = 1 << 15
"""How many of the codes of 16 bits have the sign bit."""


@dataclass(frozen=True, slots=True)
class Levels:
    """`values`, float64, descending; `counts` of tokens with each."""

    values: Tensor
    counts: Tensor

    def changed(self, before: Tensor, after: Tensor) -> "Levels":
        """The levels once tokens of the values `before` have those of `after` instead."""
        values = torch.cat([self.values, before.double(), after.double()])
        one = torch.ones_like(before, dtype=torch.long)
        values, places = torch.unique(values, return_inverse=True)
        counts = torch.zeros_like(values, dtype=torch.long)
        counts.index_add_(0, places, torch.cat([self.counts, -one, one]))
        left = (counts > 0).nonzero()[:, 0].flip(0)
        return Levels(values[left], counts[left])


def levels_of(row: Tensor) -> Levels | None:
    """The levels of a row; None where its dtype has more values than can be counted. NaN comes
    first or last."""
    if row.dtype not in (torch.bfloat16, torch.float16):
        return None
    codes = row.view(torch.int16).to(torch.int32).add_(_NEGATIVE)
    counts = torch.bincount(codes, minlength=2 * _NEGATIVE)
    # Negative values come first, by size, from -0 on; which is 0.
    counts[_NEGATIVE] += counts[0]
    counts[0] = 0
    present = counts.nonzero()[:, 0]
    negative = int(torch.searchsorted(present, _NEGATIVE))
    present = torch.cat([present[negative:].flip(0), present[:negative]])
    values = (present - _NEGATIVE).to(torch.int16).view(row.dtype).double()
    return Levels(values, counts[present])


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the order: after `count` tokens, the last of which is the `nth` (from 1) of those
    that have `value`; `mass`: the weight of them all."""

    count: int
    value: float
    nth: int
    mass: float


class Weighed:
    """Levels with the weight exp((value - `top`) / `temperature`) a token."""

    def __init__(self, levels: Levels, top: float, temperature: float) -> None:
        self._values = levels.values
        self._weights = levels.values.sub(top).div_(temperature).exp_()
        self._ends = levels.counts.cumsum(0)
        self._sums = (self._weights * levels.counts).cumsum(0)

    def after(self, count: int) -> Place:
        """The place after the first `count` tokens, at least one and at most all."""
        at = int(torch.searchsorted(self._ends, count))
        before, done, weight = self._level(at)
        nth = count - done
        return Place(count, float(self._values[at]), nth, before + nth * weight)

    def reaching(self, target: float, *, beyond: bool) -> Place | None:
        """The first place whose mass reaches (`beyond`: exceeds) `target`; None if none does."""
        at = int(torch.searchsorted(self._sums, target, right=beyond))
        if at == self._sums.numel():
            return None
        before, done, weight = self._level(at)
        there = int(self._ends[at]) - done
        nth = _steps(target - before, weight, beyond=beyond)
        nth = min(max(1, nth), there)
        return Place(done + nth, float(self._values[at]), nth, before + nth * weight)

    def at_least(self, floor: float) -> int:
        """How many tokens weigh `floor` or more."""
        heavy = int((self._weights >= floor).sum())
        return int(self._ends[heavy - 1]) if heavy else 0

    def _level(self, at: int) -> tuple[float, int, float]:
        """Mass and tokens before a level, and the weight of one of its tokens."""
        if not at:
            return 0.0, 0, float(self._weights[0])
        return float(self._sums[at - 1]), int(self._ends[at - 1]), float(self._weights[at])


def _steps(far: float, step: float, *, beyond: bool) -> int:
    """How many steps reach (exceed) what is so far, whatever the division rounds to."""
    if step <= 0.0:
        return 1
    steps = math.ceil(far / step)
    steps -= steps > 1 and ((steps - 1) * step > far if beyond else (steps - 1) * step >= far)
    steps += steps * step <= far if beyond else steps * step < far
    return steps
