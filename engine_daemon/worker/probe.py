"""One row of logits looked at: its figures, ranks, and the first K candidates.

`RowDistribution` is what the torch backends hand to the decode loop. It never changes the row it
was given and knows no model.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property

import torch
from torch import Tensor

from engine_daemon.errors import InspectError
from engine_daemon.protocol.events import How
from engine_daemon.protocol.values import Sampler
from engine_daemon.worker.backends.base import Choice, Report
from engine_daemon.worker.figures import Figures, figures, figures_of
from engine_daemon.worker.levels import Levels, levels_of
from engine_daemon.worker.order import MANY, Desk, OneThread, Order
from engine_daemon.worker.sampling import Final, Plain, plain

_NOTHING = nullcontext()


class RowDistribution:
    """One position's logits, kept in the dtype the model produced. `desk`: where to look at rows
    in host memory; one is made for this row alone if there is none."""

    def __init__(self, logits: Tensor, desk: Desk | None = None) -> None:
        self.logits = logits
        self._desk = desk
        self._found: tuple[Order, Figures] | None = None

    @property
    def row(self) -> Tensor:
        """The logits in fp32."""
        return self.order.row

    @property
    def figures(self) -> Figures:
        """See `figures`; computed once."""
        return self.looked_at[1]

    @property
    def order(self) -> Order:
        """The ids by raw logit, sorted as far as was needed."""
        return self.looked_at[0]

    @property
    def looked_at(self) -> tuple[Order, Figures]:
        """Both of them at once: the row does not stay on the desk."""
        if self._found is None:
            self._found = self._look()
        return self._found

    def _look(self) -> tuple[Order, Figures]:
        desk = self._desk
        if desk is None and self._in_host_memory:
            desk = Desk(self.logits.numel())
        if desk is not None:
            desk.lay(self.logits)
        if desk is not None and desk.size < MANY:  # nothing of torch's from here on
            order = Order(self.logits, desk)
            return order, figures(order, desk)
        with torch.inference_mode():
            order = Order(self.logits, desk)
            # The distinct values of so many are counted sooner than all are exponentiated.
            if order.size >= MANY and self.levels is not None:
                return order, figures_of(self.levels, order)
            return order, figures(order, desk)

    @property
    def _in_host_memory(self) -> bool:
        return self._desk is not None or self.logits.device.type == "cpu"

    @cached_property
    def levels(self) -> Levels | None:
        """See `levels_of`; counted once."""
        return levels_of(self.logits)

    def kept(self) -> "tuple[RowDistribution, int]":
        """The same row in host memory, as the model produced it, and its bytes."""
        row = self.logits if self._in_host_memory else self.logits.to("cpu")
        return RowDistribution(row, self._desk), row.nbytes

    def looking(self) -> "AbstractContextManager[object]":
        """Wraps what torch does with the row."""
        small = self.order.size < MANY and self._in_host_memory
        return OneThread() if small else torch.inference_mode()

    def evaluate(self, sampler: Sampler, path: Sequence[int]) -> "RowEvaluation":
        """Apply a sampler; `path` is every id before this position."""
        order = self.order
        if plain(sampler, path):
            return RowEvaluation(self, Plain(order))
        with self.looking():
            return RowEvaluation(self, Final(order, sampler, path, lambda: self.levels))


class RowEvaluation:
    """A row under one sampler."""

    def __init__(self, distribution: RowDistribution, final: Final | Plain) -> None:
        self._distribution = distribution
        self._final = final

    def report(self, k: int) -> Report:
        """Figures and the first `k` candidates by raw logit."""
        order, known = self._distribution.looked_at
        size = order.size
        k = max(1, min(k, size))
        with self._looking():
            # One more than asked: whether a tie was cut, and the second for the margin.
            ids, logits = order.listed(max(k + 1, 2))
            ties_cut = len(logits) > k and logits[k] == logits[k - 1]
            first = math.exp(logits[0] - known.logsumexp)
            second = math.exp(logits[1] - known.logsumexp) if size > 1 else 0.0
            ids, logits = ids[:k], logits[:k]
            dropped_by, final_logprobs = self._final.judge(ids, logits)
        return Report(
            ids=ids,
            logits=logits,
            final_logprobs=final_logprobs,
            dropped_by=dropped_by,
            ties_cut=ties_cut,
            entropy_bits=known.entropy_bits,
            logsumexp=known.logsumexp,
            margin=first - second,
            tail_prob=known.outside(order, k) if k < size else 0.0,
        )

    def pick(self, u: float) -> Choice:
        """The greedy pick, or the token that `u` falls on."""
        if isinstance(self._final, Plain):
            order = self._distribution.order
            return Choice(order.ids[0], order.values[0], 0.0, 1, "greedy", None)
        with self._looking():
            token_id = self._final.draw(u)
            before = None if self._final.greedy else self._final.before(token_id)
        if before is None:
            return self._choice(token_id, "greedy", None)
        return self._choice(token_id, "sampled", u, before)

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
        """As the distribution's; nothing where torch has nothing to do."""
        return _NOTHING if isinstance(self._final, Plain) else self._distribution.looking()

    def _choice(
        self, token_id: int, how: How, draw: float | None, before: float | None = None
    ) -> Choice:
        with self._looking():
            logit, rank = self._distribution.order.value_and_rank(token_id)
            final_logprob = self._final.judge([token_id], [logit])[1][0]
        return Choice(token_id, logit, final_logprob, rank, how, draw, before)
