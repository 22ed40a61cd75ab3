"""One row of logits looked at: its figures, ranks, and the first K candidates.

`RowDistribution` is what the torch backends hand to the decode loop. It never changes the row it
was given and knows no model.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from engine_daemon.errors import InspectError
from engine_daemon.protocol.events import How
from engine_daemon.protocol.values import Sampler
from engine_daemon.worker.backends.base import Choice, Report
from engine_daemon.worker.figures import Figures, figures, figures_of
from engine_daemon.worker.levels import Levels, levels_of
from engine_daemon.worker.order import Desk, Order
from engine_daemon.worker.sampling import Final

_MANY = 100_000
"""Tokens from which a row's distinct values are counted sooner than all are exponentiated."""


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
    """One position's logits, kept in the dtype the model produced. `desk`: where to look at rows
    in host memory; one is made for this row alone if there is none."""

    def __init__(self, logits: Tensor, desk: Desk | None = None) -> None:
        self.logits = logits
        self._desk = desk

    @property
    def row(self) -> Tensor:
        """The logits in fp32."""
        return self.order.row

    @property
    def figures(self) -> Figures:
        """See `figures`; computed once."""
        return self._looked_at[1]

    @property
    def order(self) -> Order:
        """The ids by raw logit, sorted as far as was needed."""
        return self._looked_at[0]

    @cached_property
    def _looked_at(self) -> tuple[Order, Figures]:
        """Both at once: the row does not stay on the desk."""
        desk = None
        if self.logits.device.type == "cpu":
            desk = self._desk or Desk(self.logits.numel())
            desk.lay(self.logits)
        order = Order(self.logits, desk)
        if self.logits.numel() >= _MANY and self.levels is not None:
            return order, figures_of(self.levels, order)
        return order, figures(order, desk)

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
            return RowEvaluation(self, Final(self.order, sampler, path, lambda: self.levels))


class RowEvaluation:
    """A row under one sampler."""

    def __init__(self, distribution: RowDistribution, final: Final) -> None:
        self._distribution = distribution
        self._final = final

    def report(self, k: int) -> Report:
        """Figures and the first `k` candidates by raw logit."""
        known = self._distribution.figures
        size = self._distribution.order.size
        k = max(1, min(k, size))
        with self._looking():
            # One more than asked: whether a tie was cut, and the second for the margin.
            ids, logits = self._distribution.order.listed(max(k + 1, 2))
            dropped_by, final_logprobs = self._final.judge(ids[:k], logits[:k])
        first, second = (math.exp(x - known.logsumexp) for x in (*logits, -math.inf)[:2])
        return Report(
            ids=ids[:k],
            logits=logits[:k],
            final_logprobs=final_logprobs,
            dropped_by=dropped_by,
            ties_cut=len(logits) > k and logits[k] == logits[k - 1],
            entropy_bits=known.entropy_bits,
            logsumexp=known.logsumexp,
            margin=first - second,
            tail_prob=known.outside(logits[:k]) if k < size else 0.0,
        )

    def pick(self, u: float) -> Choice:
        """The greedy pick, or the token that `u` falls on."""
        with self._looking():
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
        size = self._distribution.order.size
        if not 0 <= token_id < size:
            raise InspectError(
                f"id {token_id} is outside the vocabulary (0 to {size - 1})",
                code="bad_arg",
            )
        return self._choice(token_id, "forced", None)

    def _looking(self) -> "AbstractContextManager[object]":
        """As the distribution's; nothing where what is asked was seen when it was evaluated."""
        return nullcontext() if self._final.plain else self._distribution.looking()

    def _choice(self, token_id: int, how: How, draw: float | None) -> Choice:
        with self._looking():
            logit, rank = self._distribution.order.value_and_rank(token_id)
            final_logprob = self._final.judge([token_id], [logit])[1][0]
        return Choice(token_id, logit, final_logprob, rank, how, draw)
