"""The ids of a row by value: the first of them, without sorting a whole vocabulary.

Knows one row; no samplers, models or sessions.
"""

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

FIRST_PREFIX = 64
"""Tokens put in order at once: candidates, top-k and top-p seldom need more."""
PREFIX_GROWTH = 8
"""How many times as many come next, where these do not do."""
_BLOCKS_A_LEADER = 4
"""Blocks for each of the k leaders wanted: more make the search finer and the maxima dearer."""

MANY = 100_000
"""Values from which several threads are quicker than one."""

Array = np.ndarray[Any, np.dtype[np.float32]]
Indices = np.ndarray[Any, np.dtype[np.int64]]


class OneThread(torch.inference_mode):
    """Some ten thousand values are looked through sooner by one thread than two threads meet: a
    quarter less time on a quiet machine, four times less on a busy one."""

    def __enter__(self) -> None:
        super().__enter__()
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *exc: Any) -> None:
        torch.set_num_threads(self._threads)
        super().__exit__(*exc)


class Desk:
    """Room in host memory to look at rows of one size, as fp32 and for NumPy.

    After a forward nothing is in the processor's caches: there each call of torch's costs some
    40 µs, one of NumPy's 10, and going from one to the other 40 again.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        room = torch.empty(2, size)
        self._place = room[0]
        self.row: Array
        self.weights: Array
        self.row, self.weights = room.numpy()
        self._blocks = _blocks(self.row, FIRST_PREFIX) if size > FIRST_PREFIX else None

    def leading(self) -> tuple[Indices, Array]:
        """The first ids of `row` and their values, see `FIRST_PREFIX`; none where there is NaN, or
        where the row is no longer."""
        if self._blocks is None:
            return self.row[:0].astype(np.int64), self.row[:0]
        return leading_here(self.row, FIRST_PREFIX, self._blocks)

    def lay(self, logits: Tensor) -> None:
        """`logits` is what `row` holds now."""
        if self.size >= MANY:
            self._place.copy_(logits)
            return
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # whose cache has all of it then
        self._place.copy_(logits)
        torch.set_num_threads(threads)


Found = tuple[list[int], list[float]]


def leading(row: Tensor, k: int) -> Found:
    """The first `k` ids of an fp32 row by value (descending), then id (ascending), and their
    values, without a full sort.

    The k-th largest of the maxima of blocks is a lower bound of the k-th value: only what is at or
    above it is sorted. NaN may be left out.
    """
    if k < row.numel():
        if row.device.type == "cpu":
            here = row.numpy()
            near, values = leading_here(here, k, _blocks(here, k))
            found = near.tolist(), values.tolist()
        else:
            found = leading_there(row, k)
        if len(found[0]) == k:
            return found
    ordered = torch.sort(row, descending=True, stable=True)
    return ordered.indices[:k].tolist(), ordered.values[:k].tolist()


def _shape(size: int, k: int) -> tuple[int, int]:
    """Values a block, and blocks. A block is every so manieth value: the largest of all blocks
    then are found many at a time."""
    width = max(1, size // (_BLOCKS_A_LEADER * k))
    return width, size // width


def _blocks(row: Array, k: int) -> Array:
    width, blocks = _shape(row.size, k)
    return row[: width * blocks].reshape(width, blocks)


def leading_here(row: Array, k: int, blocks: Array) -> tuple[Indices, Array]:
    """Of a row in host memory, which `blocks` shows; fewer than `k` where there is NaN."""
    maxima = np.maximum.reduce(blocks)
    maxima.partition(-k)
    near = (row >= maxima[-k]).nonzero()[0]
    values = row[near]
    order = (-values).argsort(kind="stable")[:k]
    return near[order], values[order]


def leading_there(row: Tensor, k: int) -> Found:
    """Of a row on a device; fewer than `k` where there is NaN."""
    width, blocks = _shape(row.numel(), k)
    maxima = row[: width * blocks].view(width, blocks).amax(0)
    near = (row >= torch.topk(maxima, k).values[-1]).nonzero()[:, 0]
    ordered = torch.sort(row[near], descending=True, stable=True)
    return near[ordered.indices[:k]].tolist(), ordered.values[:k].tolist()


class Order:
    """The ids of a row in the sampler's order, sorted only as far as somebody asked.

    The first of them, which nearly every question is about, are held as lists: `ids`, their
    `values`, and `index`, the ids as NumPy looks them up soonest.
    """

    def __init__(self, logits: Tensor, desk: Desk | None = None) -> None:
        """`desk`: where a row in host memory lies, if it was laid there."""
        self._logits = logits
        self.size = logits.numel() if desk is None else desk.size
        self._first: Tensor | None = None
        self.ids: list[int] = []
        self.index: list[int] | Indices = self.ids
        first = min(FIRST_PREFIX, self.size)
        if desk is not None:
            self.index, values = desk.leading()
            self.ids, self.values = self.index.tolist(), values.tolist()
        if len(self.ids) < first:
            self.ids, self.values = leading(self.row, first)
            self.index = self.ids

    @cached_property
    def row(self) -> Tensor:
        """The logits in fp32."""
        return self._logits.float()

    def first(self, n: int) -> Tensor:
        """The first `n` ids (all of them when there are fewer)."""
        n = min(n, self.size)
        if self._first is None or n > self._first.numel():
            ids = self.ids
            if n > len(ids):
                wanted = max(n, PREFIX_GROWTH * len(ids))
                ids = leading(self.row, self.size if 4 * wanted >= self.size else wanted)[0]
            self._first = torch.tensor(ids, device=self._logits.device)
        return self._first[:n]

    def listed(self, n: int) -> tuple[list[int], list[float]]:
        """The first `n` ids and their values."""
        if n <= len(self.ids) or len(self.ids) == self.size:
            return self.ids[:n], self.values[:n]
        more = self.first(n)
        return more.tolist(), self.row[more].tolist()

    def value_and_rank(self, token_id: int) -> tuple[float, int]:
        """Its value, and 1 + the number of strictly greater ones."""
        if token_id in self.ids:
            value = self.values[self.ids.index(token_id)]
            return value, 1 + self.values.index(value)
        cell = self.row[token_id]
        value = float(cell)
        if value == self.values[-1]:
            return value, 1 + self.values.index(value)
        return value, 1 + int((self.row > cell).sum())
