"""The ids of a row by value: the first of them, without sorting a whole vocabulary.

Knows one row; no samplers, models or sessions.
"""

import torch
from torch import Tensor

FIRST_PREFIX = 64
"""Tokens put in order at once: candidates, top-k and top-p seldom need more."""
PREFIX_GROWTH = 8
"""How many times as many come next, where these do not do."""
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
    bound = torch.topk(maxima, k).values[-1]
    reaching = (maxima >= bound).nonzero()
    block, place = (blocks[reaching[:, 0]] >= bound).nonzero().unbind(1)
    near = reaching[block, 0] * width + place
    if whole == row.numel():
        return near
    return torch.cat([near, (row[whole:] >= bound).nonzero()[:, 0] + whole])


class Order:
    """The ids of a row in the sampler's order, sorted only as far as somebody asked.

    The first of them, which nearly every question is about, are held as plain lists.
    """

    def __init__(self, row: Tensor) -> None:
        self._row = row
        self._ids = leading(row, min(FIRST_PREFIX, row.numel()))
        self._head = self._ids.tolist(), row[self._ids].tolist()

    def first(self, n: int) -> Tensor:
        """The first `n` ids (all of them when there are fewer)."""
        size = self._row.numel()
        n = min(n, size)
        if n > self._ids.numel():
            wanted = max(n, PREFIX_GROWTH * self._ids.numel())
            self._ids = leading(self._row, size if 4 * wanted >= size else wanted)
        return self._ids[:n]

    def listed(self, n: int) -> tuple[list[int], list[float]]:
        """The first `n` ids and their values."""
        ids, values = self._head
        if n <= len(ids) or len(ids) == self._row.numel():
            return ids[:n], values[:n]
        more = self.first(n)
        return more.tolist(), self._row[more].tolist()

    def value_and_rank(self, token_id: int) -> tuple[float, int]:
        """Its value, and 1 + the number of strictly greater ones."""
        ids, values = self._head
        if token_id in ids:
            value = values[ids.index(token_id)]
            return value, 1 + values.index(value)
        cell = self._row[token_id]
        value = float(cell)
        if value == values[-1]:
            return value, 1 + values.index(value)
        return value, 1 + int((self._row > cell).sum())
