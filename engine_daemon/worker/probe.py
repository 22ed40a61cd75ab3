"""The figures of one row of logits: entropy, logsumexp, ranks, and the first K candidates.

`RowDistribution` is what the torch backends hand to the decode loop. It never changes the row it
was given and knows no model.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.events import How
from engine_daemon.protocol.values import Sampler
from engine_daemon.worker.backends.base import Choice, Report
from engine_daemon.worker.levels import Levels, levels_of
from engine_daemon.worker.order import Order
from engine_daemon.worker.sampling import Final

_MANY = 100_000
"""Tokens from which a row's distinct values are counted sooner than all are exponentiated."""
_FAR_BELOW = -1e4
"""exp() of it is 0 in fp32; stands in for -inf, which times 0 would be NaN."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What is the same under every sampler. `total` = sum of exp(logit - `top`), by `dtype`."""

    top: float
    total: float
    logsumexp: float
    entropy_bits: float
    dtype: torch.dtype = torch.float32


def figures(row: Tensor, scratch: Tensor | None = None) -> Figures:
    """Figures of an fp32 row. InspectError (`engine`) when it holds NaN, +inf or nothing at all.

    `scratch`, two rows of that length, spares the allocations: on a large vocabulary fresh pages
    cost more than the arithmetic.
    """
    if scratch is None:
        scratch = row.new_empty(2, row.numel())
    top = row.max()
    shifted = torch.sub(row, top, out=scratch[0])
    weights = torch.exp(shifted, out=scratch[1])
    total = float(weights.sum(dtype=torch.float64))
    weighted = float(torch.dot(shifted, weights))
    highest = float(top)
    _check(total, highest)
    if not math.isfinite(weighted):  # a masked token: -inf times 0
        weighted = float(torch.dot(shifted.clamp_(min=_FAR_BELOW), weights))
    return _figures(highest, total, weighted, torch.float32)


def figures_of(levels: Levels) -> Figures:
    """The same from a row's distinct values, in float64."""
    highest = float(levels.values[0])
    shifted = (levels.values - highest).clamp_(min=_FAR_BELOW)
    weights = shifted.exp() * levels.counts
    total = float(weights.sum())
    _check(total, highest)
    return _figures(highest, total, float(torch.dot(shifted, weights)), torch.float64)


def _check(total: float, highest: float) -> None:
    if not (math.isfinite(total) and math.isfinite(highest)):
        raise InspectError(
            "the model produced a NaN or infinite logit",
            "The weights may be damaged; fp16 overflows where bf16 does not (--dtype)",
            exit_code=Exit.ENGINE,
            code="engine",
        )


def _figures(top: float, total: float, weighted: float, dtype: torch.dtype) -> Figures:
    entropy = max(0.0, math.log(total) - weighted / total) / math.log(2.0)
    return Figures(top, total, top + math.log(total), entropy, dtype)


class _OneThread(torch.inference_mode):
    """A row of some ten thousand values is looked through sooner by one thread than two threads
    meet: a quarter less time on a quiet machine, four times less on a busy one."""

    def __enter__(self) -> None:
        super().__enter__()
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *exc: Any) -> None:
        torch.set_num_threads(self._threads)
        super().__exit__(*exc)


class RowDistribution:
    """One position's logits, kept in the dtype the model produced. `scratch` as in `figures`."""

    def __init__(self, logits: Tensor, scratch: Tensor | None = None) -> None:
        self.logits = logits
        self._scratch = scratch

    @cached_property
    def row(self) -> Tensor:
        """The logits in fp32."""
        return self.logits.float()

    @cached_property
    def figures(self) -> Figures:
        """See `figures`; computed once."""
        if self.logits.numel() >= _MANY and self.levels is not None:
            return figures_of(self.levels)
        return figures(self.row, self._scratch)

    @cached_property
    def order(self) -> Order:
        """The ids by raw logit, sorted as far as was needed."""
        return Order(self.row)

    @cached_property
    def levels(self) -> Levels | None:
        """See `levels_of`; counted once."""
        return levels_of(self.logits)

    def kept(self) -> "tuple[RowDistribution, int]":
        """The same row in host memory, as the model produced it, and its bytes."""
        row = self.logits.to("cpu")
        if row.untyped_storage().nbytes() > 2 * row.nbytes:  # a view would keep all of it alive
            row = row.clone()
        return RowDistribution(row), row.nbytes

    def looking(self) -> "AbstractContextManager[object]":
        """Wraps all work on the row."""
        small = self.logits.device.type == "cpu" and self.logits.numel() < _MANY
        return _OneThread() if small else torch.inference_mode()

    def evaluate(self, sampler: Sampler, path: Sequence[int]) -> "RowEvaluation":
        """Apply a sampler; `path` is every id before this position."""
        with self.looking():
            _ = self.figures  # a row with NaN has no order: say so before looking for one
            final = Final(self.row, sampler, path, self.order, lambda: self.levels)
            return RowEvaluation(self, final)


class RowEvaluation:
    """A row under one sampler."""

    def __init__(self, distribution: RowDistribution, final: Final) -> None:
        self._distribution = distribution
        self._final = final

    def report(self, k: int) -> Report:
        """Figures and the first `k` candidates by raw logit."""
        known = self._distribution.figures
        size = self._distribution.row.numel()
        k = max(1, min(k, size))
        with self._distribution.looking():
            # One more than asked: whether a tie was cut, and the second for the margin.
            ids, logits = self._distribution.order.listed(max(k + 1, 2))
            dropped_by, final_logprobs = self._final.judge(ids[:k], logits[:k])
        first, second = (math.exp(x - known.logsumexp) for x in (*logits, -math.inf)[:2])
        # In the dtype `total` was summed in: a tail of 1e-12 must not drown in another rounding.
        leaders = torch.tensor(logits[:k], dtype=known.dtype)
        inside = float((leaders - known.top).exp_().sum(dtype=torch.float64))
        return Report(
            ids=ids[:k],
            logits=logits[:k],
            final_logprobs=final_logprobs,
            dropped_by=dropped_by,
            ties_cut=len(logits) > k and logits[k] == logits[k - 1],
            entropy_bits=known.entropy_bits,
            logsumexp=known.logsumexp,
            margin=first - second,
            tail_prob=max(0.0, (known.total - inside) / known.total) if k < size else 0.0,
        )

    def pick(self, u: float) -> Choice:
        """The greedy pick, or the token that `u` falls on."""
        with self._distribution.looking():
            token_id = self._final.draw(u)
        if self._final.greedy:
            return self._choice(token_id, "greedy", None)
        return self._choice(token_id, "sampled", u)

    def picks(self, us: list[float]) -> list[int]:
        """The ids that many draws fall on, each as `pick` finds it."""
        with torch.inference_mode():
            return self._final.draw_many(us)

    def forced(self, token_id: int) -> Choice:
        """This id, with the values it has here; InspectError (`bad_arg`) beyond the vocabulary."""
        size = self._distribution.row.numel()
        if not 0 <= token_id < size:
            raise InspectError(
                f"id {token_id} is outside the vocabulary (0 to {size - 1})",
                code="bad_arg",
            )
        return self._choice(token_id, "forced", None)

    def _choice(self, token_id: int, how: How, draw: float | None) -> Choice:
        with torch.inference_mode():
            logit, rank = self._distribution.order.value_and_rank(token_id)
            final_logprob = self._final.judge([token_id], [logit])[1][0]
        return Choice(token_id, logit, final_logprob, rank, how, draw)
