"""What a cache holds by kind of layer, counted from its tensors.

Knows transformers' layer classes; no model, no session.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from torch import Tensor
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
)

from engine_daemon.protocol.values import CacheKind

_Kind = tuple[str, Literal["growing", "bounded", "fixed"]]
_Measure = Callable[[Any], Iterable[object]] | None
"""The tensors of a kind in a layer; None: they are buffers, larger than what is used of them."""


class Kinds:
    """The kinds of some layers, looked up once: every step reports them.

    Full attention grows with every token, a sliding window up to its length; the recurrent and
    the convolution state of linear attention never do.
    """

    def __init__(self, layers: Iterable[object]) -> None:
        self._places: dict[_Kind, tuple[list[int], _Measure]] = {}
        for number, layer in enumerate(layers):
            for kind, measure in _parts_of(type(layer)):
                self._places.setdefault(kind, ([], measure))[0].append(number)

    def held(self, layers: Sequence[object], used_bytes: int) -> list[CacheKind]:
        """What the layers, of the same classes still, hold: one entry a kind, in the order in
        which the kinds come first. `used_bytes`: of the buffers."""
        return [
            CacheKind(
                kind=kind,
                layers=len(numbers),
                bytes=used_bytes if of is None else _sum(of, [layers[i] for i in numbers]),
                growth=growth,
            )
            for (kind, growth), (numbers, of) in self._places.items()
        ]


def _parts_of(layer: type) -> Iterator[tuple[_Kind, _Measure]]:
    if issubclass(layer, LinearAttentionCacheLayerMixin):
        yield ("recurrent", "fixed"), lambda x: x.recurrent_states.values()
        yield ("convolution", "fixed"), lambda x: x.conv_states.values()
    if issubclass(layer, DynamicSlidingWindowLayer):
        yield ("sliding_attention", "bounded"), _held
    elif issubclass(layer, DynamicLayer):
        ours = hasattr(layer, "keep_first")
        yield ("full_attention", "growing"), None if ours else _held


def _held(layer: Any) -> list[object]:
    return [getattr(layer, name, None) for name in ("keys", "values", "indexer_keys")]


def _sum(tensors_of: Callable[[Any], Iterable[object]], layers: list[Any]) -> int:
    tensors = (tensor for layer in layers for tensor in tensors_of(layer))
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, Tensor))
