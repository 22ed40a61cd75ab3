"""The sampler: from a row of logits to the distribution a draw uses, stage by stage.

Pure functions of one fp32 row in CONTRACT's order. Knows no model, cache or session; the figures
of the raw row are `probe`'s.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.values import DroppedBy, Sampler
from engine_daemon.worker.levels import Levels, Place, Weighed
from engine_daemon.worker.order import FIRST_PREFIX, PREFIX_GROWTH, Order

_LONGEST_PREFIX = PREFIX_GROWTH * FIRST_PREFIX
"""Beyond it a running sum is looked for by bins of values: sorting so many costs more."""
_FAR = 3.0
"""A sum so many times as far as the first ones came is not looked for in the next ones."""
_KEPT, _GREEDY = int(DroppedBy.KEPT), int(DroppedBy.GREEDY)
_BINS = 4096
_BINNED_NATS = 40.0
"""What the bins span; lower weights share the last."""


def neutral(sampler: Sampler) -> bool:
    """True when it penalises nothing."""
    return (
        sampler.repetition_penalty == 1.0
        and sampler.presence_penalty == 0.0
        and sampler.frequency_penalty == 0.0
    )


def plain(sampler: Sampler, path: Sequence[int]) -> bool:
    """True when the largest raw logit is picked: no other is looked at."""
    return sampler.is_greedy and (not path or neutral(sampler))


def penalise(row: Tensor, sampler: Sampler, path: Sequence[int]) -> Tensor:
    """`row` after repetition, presence and frequency penalties over the ids of `path`.

    Repetition divides positive and multiplies negative logits; presence subtracts once, frequency
    once an occurrence. Returns `row` itself when all three are neutral.
    """
    if neutral(sampler) or not path:
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


class Plain:
    """What greedy makes of a row without penalties: the first in order, and nothing is summed. That
    its logit is finite was seen with the row's figures."""

    def __init__(self, order: Order) -> None:
        self._first = order.ids[0]

    def judge(self, ids: list[int], raw: list[float]) -> tuple[list[int], list[float]]:
        """See `Final.judge`."""
        first = self._first
        return (
            [_KEPT if token_id == first else _GREEDY for token_id in ids],
            [0.0 if token_id == first else -math.inf for token_id in ids],
        )

    def draw_many(self, us: Sequence[float]) -> list[int]:
        """The first id for each of `us`."""
        return [self._first] * len(us)


class Final:
    """What a sampler makes of one row: which stage dropped whom, and the draw.

    Each filter keeps a prefix of the sampler's order (penalised logit descending, then id), so a
    stage is the value and id of the last token it kept. Weights are float64, relative to the
    largest logit. `order` is that of the raw row; `levels` gives those of it, or None where they
    cannot be had.
    """

    def __init__(
        self,
        order: Order,
        sampler: Sampler,
        path: Sequence[int] = (),
        levels: Callable[[], Levels | None] = lambda: None,
    ) -> None:
        self._raw, self._levels = order, levels
        self.greedy = sampler.is_greedy
        self._penalised = bool(path) and not neutral(sampler)
        self._order = Order(penalise(order.row, sampler, path)) if self._penalised else order
        self._temperature = 1.0 if self.greedy else sampler.temperature
        self._top = self._order.listed(1)[1][0]
        if not math.isfinite(self._top):
            raise InspectError(
                "the sampler's logits hold no finite maximum",
                "Check the penalties, or the model's weights",
                exit_code=Exit.ENGINE,
                code="engine",
            )
        self._cuts: list[tuple[DroppedBy, float, int | Place]] = []
        self._kept = order.size
        self._mass: float | None = None
        self._all: Tensor | None = None
        self._bins: tuple[Tensor, Tensor] | None = None
        if self.greedy:
            self._cut_after(DroppedBy.GREEDY, 1)
        else:
            self._filter(sampler)

    @property
    def _values(self) -> Tensor:
        """What is sampled from: the row after penalties."""
        return self._order.row

    # Stages ------------------------------------------------------------------------------------

    def _filter(self, sampler: Sampler) -> None:
        if 0 < sampler.top_k < self._kept:
            last = self._values[self._order.first(sampler.top_k)[-1]]
            self._cut_after(DroppedBy.TOP_K, int((self._values >= last).sum()), ties=True)
        if sampler.top_p < 1.0:
            count, last_id, mass = self._reaching(sampler.top_p * self.mass)
            self._cut_after(DroppedBy.TOP_P, count, last_id)
            self._mass = mass if self._mass is None else self._mass
        if sampler.min_p > 0.0:
            floor = min(sampler.min_p, 1.0)
            self._cut_after(DroppedBy.MIN_P, self._count_at_least(floor), ties=True)
        if float(self._values.min()) == -math.inf:
            finite = min(self._kept, int((self._values > -math.inf).sum()))
            self._cut_after(DroppedBy.MASK, finite, ties=True)

    def _cut_after(
        self,
        stage: DroppedBy,
        count: int,
        last: int | Place | None = None,
        *,
        ties: bool = False,
    ) -> None:
        """Keep the first `count`, of which `last` is the last where that is known. `ties`: the cut
        falls between different values."""
        if count >= self._kept:
            return
        last_id: int | Place
        if isinstance(last, Place):
            last_id, value = last, last.value
        elif last is not None:
            last_id, value = last, float(self._values[last])
        elif count <= FIRST_PREFIX:
            ids, values = self._order.listed(count)
            last_id, value = ids[-1], values[-1]
        elif ties and self._weighed is not None:
            value, last_id = self._weighed.after(count).value, -1
        elif ties:
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
        # In place: on a large vocabulary fresh pages cost more than the arithmetic.
        shifted = values.to(torch.float64, copy=True).sub_(self._top)
        return (shifted if self._temperature == 1.0 else shifted.div_(self._temperature)).exp_()

    def _prefix_weights(self, n: int) -> Tensor:
        return self._weights(self._values[self._order.first(min(n, self._kept))])

    @property
    def mass(self) -> float:
        """Sum of the weights still kept."""
        if self._mass is None:
            if self._kept == 1:
                return 1.0
            if self._kept <= FIRST_PREFIX:
                kept = self._prefix_weights(self._kept)
            elif self._weighed is not None:
                self._mass = self._weighed.after(self._kept).mass
                return self._mass
            elif self._cuts:
                kept = self._weights(self._values[self._within(*self._cuts[-1][1:])])
            else:
                kept = self._every_weight()
            self._mass = float(kept.sum())
        return self._mass

    def _within(self, value: float, last: int | Place) -> Tensor:
        """Mask of the tokens up to and including (`value`, `last`) in the order."""
        last_id = self._id_at(last) if isinstance(last, Place) else last
        if last_id >= self._values.numel():
            return self._values >= value
        kept = self._values > value
        kept[: last_id + 1] |= self._values[: last_id + 1] == value
        return kept

    def _reaching(self, target: float) -> tuple[int, int | Place | None, float | None]:
        """Length of the shortest prefix whose weights reach `target`, at least one; its last id
        and their sum where these are known."""
        if self._weighed is not None:
            return self._told(self._weighed.reaching(target, beyond=False))
        n = FIRST_PREFIX
        while n <= _LONGEST_PREFIX:
            running = self._prefix_weights(n).cumsum(0)
            at = int(torch.searchsorted(running, target))
            if at < running.numel():
                return at + 1, None, None
            if running.numel() >= self._kept:
                return self._kept, None, None
            if _FAR * float(running[-1]) < target:
                break
            n *= PREFIX_GROWTH
        return self._crossing(target, beyond=False) or (self._kept, None, None)

    def _told(self, place: Place | None) -> tuple[int, Place | None, float | None]:
        """As `_reaching` tells it."""
        if place is None or place.count > self._kept:
            return self._kept, None, None
        if place.count <= FIRST_PREFIX:
            return place.count, None, None
        return place.count, place, place.mass

    def _id_at(self, place: Place) -> int:
        """The last id before a place."""
        if place.count <= FIRST_PREFIX:
            return self._order.listed(place.count)[0][-1]
        return int((self._values == place.value).nonzero()[place.nth - 1, 0])

    @cached_property
    def _weighed(self) -> Weighed | None:
        """The levels of what is sampled from, under the temperature."""
        levels = self._levels()
        if levels is None:
            return None
        if self._penalised:
            raw = self._raw.row
            changed = self._values != raw
            levels = levels.changed(raw[changed], self._values[changed])
        return Weighed(levels, self._top, self._temperature)

    def _crossing(self, target: float, *, beyond: bool) -> tuple[int, int, float] | None:
        """How many of the order it takes until their weights reach (`beyond`: exceed) `target`,
        the last of them and their sum; None when all that are kept do not.

        What is kept is a prefix, so what was dropped need not be left out. Sorts one bin only.
        """
        bins, running = self._binned()
        bin_ = int(torch.searchsorted(running, target, right=beyond))
        if bin_ == _BINS:
            return None
        ids = (bins == bin_).nonzero()[:, 0]
        ids = ids[torch.sort(self._values[ids], descending=True, stable=True).indices]
        inside = self._weights(self._values[ids]).cumsum(0)
        if bin_:
            inside += running[bin_ - 1]
        # Summed in another order than the bins: rounding may leave the last a hair below.
        at = min(int(torch.searchsorted(inside, target, right=beyond)), ids.numel() - 1)
        count = int(torch.count_nonzero(bins < bin_)) + at + 1
        return (count, int(ids[at]), float(inside[at])) if count <= self._kept else None

    def _binned(self) -> tuple[Tensor, Tensor]:
        """For each id its bin, by value; the running sum of weights over the bins."""
        if self._bins is None:
            places = torch.sub(self._top, self._values)
            places.mul_(_BINS / (_BINNED_NATS * self._temperature)).clamp_(max=_BINS - 1)
            bins = places.long()
            self._bins = bins, torch.bincount(bins, self._every_weight(), _BINS).cumsum(0)
        return self._bins

    def _every_weight(self) -> Tensor:
        """Weights of the whole vocabulary."""
        if self._all is None:
            self._all = self._weights(self._values)
        return self._all

    def _count_at_least(self, floor: float) -> int:
        """How many of the kept weigh `floor` or more (the largest weighs 1)."""
        if self._kept <= FIRST_PREFIX:
            return int((self._prefix_weights(self._kept) >= floor).sum())
        if self._weighed is not None:
            return min(self._kept, self._weighed.at_least(floor))
        return min(self._kept, int((self._weights(self._values) >= floor).sum()))

    # What it is asked --------------------------------------------------------------------------

    def judge(self, ids: list[int], raw: list[float]) -> tuple[list[int], list[float]]:
        """For each id, with its raw logit, the first stage that took it out (`DroppedBy`) and its
        final log-probability, -inf where it was dropped."""
        values = raw
        if self._penalised:
            index = torch.tensor(ids, dtype=torch.long, device=self._values.device)
            values = self._values[index].tolist()
        log_mass = math.log(self.mass)
        stages = [self._stage(i, value) for i, value in zip(ids, values, strict=True)]
        return [int(x) for x in stages], [
            (value - self._top) / self._temperature - log_mass
            if stage is DroppedBy.KEPT
            else -math.inf
            for stage, value in zip(stages, values, strict=True)
        ]

    def _stage(self, token_id: int, value: float) -> DroppedBy:
        for stage, last_value, last in self._cuts:
            if value < last_value:
                return stage
            if value == last_value:
                # Which token has the place costs a pass over the row; seldom does one ask.
                last_id = self._id_at(last) if isinstance(last, Place) else last
                if token_id > last_id:
                    return stage
        return DroppedBy.KEPT

    def draw(self, u: float) -> int:
        """The first id in order whose cumulative final probability exceeds `u`."""
        if self._kept == 1:
            return self._order.listed(1)[0][0]
        if self._weighed is not None:
            place = self._weighed.reaching(u * self.mass, beyond=True)
            inside = place is not None and place.count <= self._kept
            return self._id_at(place) if place and inside else self._last_possible()
        n = FIRST_PREFIX
        while n <= _LONGEST_PREFIX:
            running = (self._prefix_weights(n) / self.mass).cumsum(0)
            at = int(torch.searchsorted(running, u, right=True))
            if at < running.numel():
                return int(self._order.first(at + 1)[-1])
            if running.numel() >= self._kept:
                return self._last_possible()
            if _FAR * float(running[-1]) < u:
                break
            n *= PREFIX_GROWTH
        found = self._crossing(u * self.mass, beyond=True)
        return self._last_possible() if found is None else found[1]

    def before(self, token_id: int) -> float:
        """The final probability of all that come before this one: where its interval begins."""
        if token_id in self._order.ids:
            ahead = self._prefix_weights(self._order.ids.index(token_id))
            return float(ahead.sum()) / self.mass
        value = self._values[token_id]
        higher, same = self._values > value, self._values[:token_id] == value
        if self._weighed is None:
            higher[:token_id] |= same
            return float(self._every_weight()[higher].sum()) / self.mass
        count = int(higher.sum()) + int(same.sum())
        return self._weighed.after(count).mass / self.mass if count else 0.0

    def draw_many(self, us: Sequence[float]) -> list[int]:
        """What `draw` gives for each of `us`."""
        if self._kept == 1 or not us:
            return [self.draw(0.0)] * len(us)
        n = FIRST_PREFIX
        while True:
            running = (self._prefix_weights(n) / self.mass).cumsum(0)
            if float(running[-1]) > max(us) or running.numel() >= self._kept:
                break
            n *= PREFIX_GROWTH
        places = torch.searchsorted(running, torch.tensor(us, dtype=running.dtype), right=True)
        ids = self._order.first(running.numel()).cpu()
        beyond = places >= running.numel()
        found: list[int] = ids[places.clamp(max=running.numel() - 1)].tolist()
        if bool(beyond.any()):
            last = self._last_possible()
            found = [last if out else i for i, out in zip(found, beyond.tolist(), strict=True)]
        return found

    def _last_possible(self) -> int:
        """The last id with any weight: rounding left the sum a hair below `u`."""
        if self._kept > _LONGEST_PREFIX:
            weighs = self._every_weight() > 0
            if self._cuts:
                weighs &= self._within(*self._cuts[-1][1:])
            least = self._values[weighs].min()
            return int((weighs & (self._values == least)).nonzero()[-1])
        possible = int((self._prefix_weights(self._kept) > 0).sum())
        return int(self._order.first(possible)[-1])
