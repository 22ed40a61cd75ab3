"""The sampler: from a row of logits to the distribution a draw uses, stage by stage.

Pure functions of one fp32 row in CONTRACT's order. Knows no model, cache or session; the figures
of the raw row are `probe`'s.
"""

import math
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.values import DroppedBy, Sampler

_FIRST_PREFIX = 64
_PREFIX_GROWTH = 8
_BLOCKS_A_LEADER = 16
"""Blocks for each of the k leaders wanted: more make the search finer and the maxima dearer."""


def leading(row: Tensor, k: int) -> Tensor:
    """The first `k` ids of `row` by value (descending), then id (ascending), without a full sort.

    The k-th largest of block maxima is a lower bound of the k-th value: only the blocks that reach
    it are looked into, and only the values at or above it are sorted.
    """
    size = row.numel()
    if k >= size:
        return torch.sort(row, descending=True, stable=True).indices
    width = size // (_BLOCKS_A_LEADER * k)
    if width < 4:
        near = (row >= torch.topk(row, k).values[-1]).nonzero().squeeze(1)
    else:
        near = _near_the_top(row, k, width)
    return near[torch.sort(row[near], descending=True, stable=True).indices[:k]]


def _near_the_top(row: Tensor, k: int, width: int) -> Tensor:
    """Ascending ids of every value at or above a lower bound of the k-th."""
    whole = row.numel() // width * width
    blocks = row[:whole].view(-1, width)
    maxima = blocks.amax(1)
    bound = torch.topk(maxima, k, sorted=False).values.min()
    reaching = (maxima >= bound).nonzero().squeeze(1)
    pairs = (blocks[reaching] >= bound).nonzero()
    near = reaching[pairs[:, 0]] * width + pairs[:, 1]
    rest = (row[whole:] >= bound).nonzero().squeeze(1) + whole
    return torch.cat([near, rest])


def penalise(row: Tensor, sampler: Sampler, path: Sequence[int]) -> Tensor:
    """`row` after repetition, presence and frequency penalties over the ids of `path`.

    Repetition divides positive and multiplies negative logits; presence subtracts once, frequency
    once an occurrence. Returns `row` itself when all three are neutral.
    """
    neutral = (
        sampler.repetition_penalty == 1.0
        and sampler.presence_penalty == 0.0
        and sampler.frequency_penalty == 0.0
    )
    if neutral or not path:
        return row
    counts = Counter(i for i in path if i < row.numel())
    ids = torch.tensor(list(counts), dtype=torch.long, device=row.device)
    times = torch.tensor(list(counts.values()), dtype=row.dtype, device=row.device)
    values = row[ids]
    if sampler.repetition_penalty != 1.0:
        factor = sampler.repetition_penalty
        values = torch.where(values < 0, values * factor, values / factor)
    if sampler.presence_penalty != 0.0:
        values = values - sampler.presence_penalty
    if sampler.frequency_penalty != 0.0:
        values = values - times * sampler.frequency_penalty
    return row.index_put((ids,), values)


class Order:
    """The ids of a row in the sampler's order, sorted only as far as somebody asked."""

    def __init__(self, row: Tensor) -> None:
        self._row = row
        self._ids = row.new_empty(0, dtype=torch.long)

    @property
    def known(self) -> Tensor:
        """The ids put in order so far."""
        return self._ids

    def first(self, n: int) -> Tensor:
        """The first `n` ids (all of them when there are fewer)."""
        size = self._row.numel()
        n = min(n, size)
        if n > self._ids.numel():
            wanted = max(n, _FIRST_PREFIX, _PREFIX_GROWTH * self._ids.numel())
            self._ids = leading(self._row, size if 4 * wanted >= size else wanted)
        return self._ids[:n]


class Final:
    """What a sampler makes of one row: which stage dropped whom, and the draw.

    Each filter keeps a prefix of the sampler's order (penalised logit descending, then id), so a
    stage is the value and id of the last token it kept. Weights are float64, relative to the
    largest logit. `order` is that of `row`, where it is known already.
    """

    def __init__(
        self,
        row: Tensor,
        sampler: Sampler,
        path: Sequence[int] = (),
        order: Order | None = None,
    ) -> None:
        self.greedy = sampler.greedy or sampler.temperature <= 0.0
        self._values = penalise(row, sampler, path)
        self._order = order if order and self._values is row else Order(self._values)
        self._temperature = 1.0 if self.greedy else sampler.temperature
        self._top = float(self._values[self._order.first(1)])
        if not math.isfinite(self._top):
            raise InspectError(
                "the sampler's logits hold no finite maximum",
                "Check the penalties, or the model's weights",
                exit_code=Exit.ENGINE,
                code="engine",
            )
        self._cuts: list[tuple[DroppedBy, float, int]] = []
        self._kept = self._values.numel()
        self._mass: float | None = None
        if self.greedy:
            self._cut_after(DroppedBy.GREEDY, 1)
        else:
            self._filter(sampler)

    # Stages ------------------------------------------------------------------------------------

    def _filter(self, sampler: Sampler) -> None:
        if 0 < sampler.top_k < self._kept:
            last = self._values[self._order.first(sampler.top_k)[-1]]
            self._cut_after(DroppedBy.TOP_K, int((self._values >= last).sum()), ties=True)
        if sampler.top_p < 1.0:
            self._cut_after(DroppedBy.TOP_P, self._reaching(sampler.top_p * self.mass))
        if sampler.min_p > 0.0:
            floor = min(sampler.min_p, 1.0)
            self._cut_after(DroppedBy.MIN_P, self._count_at_least(floor), ties=True)
        if float(self._values.min()) == -math.inf:
            finite = min(self._kept, int((self._values > -math.inf).sum()))
            self._cut_after(DroppedBy.MASK, finite, ties=True)

    def _cut_after(self, stage: DroppedBy, count: int, *, ties: bool = False) -> None:
        """Keep the first `count`. `ties`: the cut falls between different values."""
        if count >= self._kept:
            return
        if ties and count > _FIRST_PREFIX:
            # Only the value is needed: no reason to order the tokens before it.
            smallest = self._values.numel() - count + 1
            value, last_id = float(torch.kthvalue(self._values, smallest).values), -1
        else:
            last_id = int(self._order.first(count)[-1])
            value = float(self._values[last_id])
        self._cuts.append((stage, value, self._values.numel() if ties else last_id))
        self._kept = count
        self._mass = None

    def _weights(self, values: Tensor) -> Tensor:
        return ((values.double() - self._top) / self._temperature).exp_()

    def _prefix_weights(self, n: int) -> Tensor:
        return self._weights(self._values[self._order.first(min(n, self._kept))])

    @property
    def mass(self) -> float:
        """Sum of the weights still kept."""
        if self._mass is None:
            if self._kept <= _FIRST_PREFIX:
                kept = self._prefix_weights(self._kept)
            elif self._cuts:
                kept = self._weights(self._values[self._within(*self._cuts[-1][1:])])
            else:
                kept = self._weights(self._values)
            self._mass = float(kept.sum())
        return self._mass

    def _within(self, value: float, last_id: int) -> Tensor:
        """Mask of the tokens up to and including (`value`, `last_id`) in the order."""
        if last_id >= self._values.numel():
            return self._values >= value
        kept = self._values > value
        kept[: last_id + 1] |= self._values[: last_id + 1] == value
        return kept

    def _reaching(self, target: float) -> int:
        """Length of the shortest prefix whose weights reach `target`; at least one."""
        n = _FIRST_PREFIX
        while True:
            running = self._prefix_weights(n).cumsum(0)
            at = int(torch.searchsorted(running, target))
            if at < running.numel():
                return at + 1
            if running.numel() >= self._kept:
                return self._kept
            n *= _PREFIX_GROWTH

    def _count_at_least(self, floor: float) -> int:
        """How many of the kept weigh `floor` or more (the largest weighs 1)."""
        if self._kept <= _FIRST_PREFIX:
            return int((self._prefix_weights(self._kept) >= floor).sum())
        return min(self._kept, int((self._weights(self._values) >= floor).sum()))

    # What it is asked --------------------------------------------------------------------------

    def judge(self, ids: Tensor) -> tuple[list[int], list[float]]:
        """For each id the first stage that took it out (`DroppedBy`) and its final
        log-probability, -inf where it was dropped."""
        stages = []
        logprobs = []
        log_mass = math.log(self.mass)
        for token_id, value in zip(ids.tolist(), self._values[ids].tolist(), strict=True):
            stage = self._stage(token_id, value)
            stages.append(int(stage))
            kept = stage is DroppedBy.KEPT
            relative = (value - self._top) / self._temperature
            logprobs.append(relative - log_mass if kept else -math.inf)
        return stages, logprobs

    def _stage(self, token_id: int, value: float) -> DroppedBy:
        for stage, last_value, last_id in self._cuts:
            if value < last_value or (value == last_value and token_id > last_id):
                return stage
        return DroppedBy.KEPT

    def draw(self, u: float) -> int:
        """The first id in order whose cumulative final probability exceeds `u`."""
        if self._kept == 1:
            return int(self._order.first(1))
        n = _FIRST_PREFIX
        while True:
            running = (self._prefix_weights(n) / self.mass).cumsum(0)
            at = int(torch.searchsorted(running, u, right=True))
            if at < running.numel():
                return int(self._order.first(at + 1)[-1])
            if running.numel() >= self._kept:
                return self._last_possible()
            n *= _PREFIX_GROWTH

    def _last_possible(self) -> int:
        """The last id with any weight: rounding left the sum a hair below `u`."""
        possible = int((self._prefix_weights(self._kept) > 0).sum())
        return int(self._order.first(possible)[-1])
