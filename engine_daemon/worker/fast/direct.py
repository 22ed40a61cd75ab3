"""One decode step of a model of a known family as a row of direct calls, without its modules.

A module's call costs as much as the small product inside it: hooks, masks, casts one by one. What
is computed is the same; what flows is fp32, keys, values and logits are the model's dtype. Knows
parts and cache layers; no sessions.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from engine_daemon.worker.caches import GrowingLayer, build_layers
from engine_daemon.worker.fast.attention import over_buffers
from engine_daemon.worker.fast.family import Layer, Norm, Parts, Product

_BLOCK: Final = 512
"""Positions whose rotations are made at once."""
_MOST_BLOCKS: Final = 32
TRIED: Final = ([1, 3, 2, 0], [2], [1], [3])
"""Ids read one after the other when both ways are compared."""
TOLERANCE: Final = {torch.float32: 1e-4, torch.bfloat16: 0.1}
"""How far the logits may be apart, of how far they are spread."""


class DirectStep:
    """The forward of one id after at least one other."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._layers = [
            (layer, _normed(layer.before, layer.qkv), _normed(layer.between, layer.gate_up))
            for layer in parts.layers
        ]
        self._last = _normed(parts.last, parts.head)
        self._rotations = _Rotations(parts)

    def is_as_loaded(self, look: Callable[[], None]) -> bool:
        """True when the weights that are laid out once more are those the model holds now. `look`
        is called after each."""
        same = True
        for streamed in self._parts.streamed:
            same &= streamed.is_as_given()
            look()
        return same

    def takes(self, layers: Sequence[object]) -> bool:
        """True when all of a cache's layers are ours and hold something, each the same length."""
        lengths = {layer.length if type(layer) is GrowingLayer else 0 for layer in layers}
        return len(layers) == len(self._layers) and len(lengths) == 1 and 0 not in lengths

    def logits(self, token_id: int, layers: Sequence[Any]) -> Tensor:
        """`[1, vocabulary]` after one more id; its keys and values are in `layers` then, which
        it `takes` and which have room."""
        turn = self._rotations.at(layers[0].length)
        embedding = self._parts.embedding
        hidden = embedding[token_id : token_id + 1].to(torch.float32, copy=True)
        for (layer, qkv, gate_up), held in zip(self._layers, layers, strict=True):
            mixed = _attend(layer, qkv(hidden), turn, held)
            hidden.add_(layer.out.compute(mixed), alpha=layer.out.shrink)
            gate, up = gate_up(hidden).chunk(2, 1)
            made = layer.down.compute(functional.silu(gate).mul_(up))
            hidden.add_(made, alpha=layer.down.shrink)
        return self._last(hidden).to(embedding.dtype)


def _attend(layer: Layer, states: Tensor, turn: "_Rotation", held: GrowingLayer) -> Tensor:
    """`[1, heads x size]`, from queries, keys and values side by side; the latter two go to
    `held`."""
    heads, groups, at = layer.heads, layer.groups, held.length
    states = states.view(-1, layer.size)
    turned = states.narrow(0, 0, heads + groups)
    if layer.head_norm is not None:
        turned = _rows_normed(turned, layer.head_norm)
    swapped = torch.index_select(turned, 1, turn.others)
    turned = torch.addcmul(turned * turn.cosines, swapped, turn.sines)
    keys, values = held.keys, held.values
    keys.select(2, at).copy_(turned.narrow(0, heads, groups))
    values.select(2, at).copy_(states.narrow(0, heads + groups, groups))
    held.length = at + 1
    query = turned.narrow(0, 0, heads).to(keys.dtype).view(1, groups, -1, layer.size)
    return over_buffers(query, keys, values, at + 1, layer.scaling).reshape(1, -1).float()


def _normed(norm: Norm, product: Product) -> Callable[[Tensor], Tensor]:
    """A product of a normed row. What it is divided by is taken as a number, not as a tensor, so
    that both factors are one operation."""
    weight, eps, size = norm.weight, norm.eps, norm.weight.numel()
    compute, shrink = product.compute, product.shrink
    nothing = torch.zeros_like(weight)

    def made(row: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(row).item()
        scale = shrink / math.sqrt(length * length / size + eps)
        return compute(torch.addcmul(nothing, row, weight, value=scale))

    return made


def _rows_normed(rows: Tensor, norm: Norm) -> Tensor:
    scale = rows.square().mean(-1, keepdim=True).add_(norm.eps).rsqrt_()
    return (rows * scale).mul_(norm.weight)


class _Rotation(NamedTuple):
    """Of one position. `others`: where the other of each pair of numbers is."""

    cosines: Tensor
    sines: Tensor
    others: Tensor


class _Rotations:
    """Rows of cosines and sines by position, the first half of the sines negated."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._blocks: dict[int, tuple[Tensor, Tensor]] = {}
        size = parts.layers[0].size
        self._others = torch.arange(size).roll(size // 2)

    def at(self, position: int) -> _Rotation:
        number, place = divmod(position, _BLOCK)
        cosines, sines = self._blocks.get(number) or self._made(number)
        return _Rotation(cosines[place], sines[place], self._others)

    def _made(self, number: int) -> tuple[Tensor, Tensor]:
        if len(self._blocks) == _MOST_BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        positions = torch.arange(number * _BLOCK, (number + 1) * _BLOCK)[None]
        made = self._parts.rotary(self._parts.embedding, positions)
        cosines, sines = (x[0].float().clone() for x in made)
        sines[:, : sines.shape[1] // 2].neg_()
        self._blocks[number] = cosines, sines
        return cosines, sines


def agrees(direct: DirectStep, model: Any) -> bool:
    """True when a few steps give what the model's own forward gives."""
    with torch.inference_mode():
        ours, theirs = (build_layers(model.config, None) for _ in range(2))
        for ids in TRIED:
            tensor = torch.tensor([ids])
            expected = model(input_ids=tensor, cache=theirs, use_cache=True).logits[0, -1:]
            if not direct.takes(ours.layers):
                model(input_ids=tensor, cache=ours, use_cache=True)
                continue
            ours.reserve(ours.get_seq_length() + 1)
            made = direct.logits(ids[0], ours.layers)
            spread = expected.float() - expected.float().mean()
            apart = (made.float() - expected.float()).norm()
            if not bool(apart <= TOLERANCE[made.dtype] * spread.norm()):
                return False
    return True
