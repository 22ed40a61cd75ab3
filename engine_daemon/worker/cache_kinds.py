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
_Measure = Callable[[Any], int]


class Kinds:
    """The kinds of some layers, looked up once: every step reports them.

    Full attention grows with every token, a sliding window up to its length; the recurrent and
    the convolution state of linear attention never do.
    """

    def __init__(self, layers: Iterable[object]) -> None:
        self._places: dict[_Kind, list[tuple[int, _Measure]]] = {}
        for number, layer in enumerate(layers):
            for kind, measure in _parts_of(type(layer)):
                self._places.setdefault(kind, []).append((number, measure))

    def held(self, layers: Sequence[object]) -> list[CacheKind]:
        """What the layers, of the same classes still, hold: one entry a kind, in the order in
        which the kinds come first."""
        return [
            CacheKind(
                kind=kind,
                layers=len(places),
                bytes=sum([measure(layers[number]) for number, measure in places]),
                growth=growth,
            )
            for (kind, growth), places in self._places.items()
        ]


def _parts_of(layer: type) -> Iterator[tuple[_Kind, _Measure]]:
    if issubclass(layer, LinearAttentionCacheLayerMixin):
        yield ("recurrent", "fixed"), lambda x: _sum(x.recurrent_states.values())
        yield ("convolution", "fixed"), lambda x: _sum(x.conv_states.values())
    if issubclass(layer, DynamicSlidingWindowLayer):
        yield ("sliding_attention", "bounded"), _held
    elif issubclass(layer, DynamicLayer):
        ours = hasattr(layer, "keep_first")
        yield ("full_attention", "growing"), _used if ours else _held


def _used(layer: Any) -> int:
    """Of one of our layers, whose buffers are larger than what is used of them."""
    return int(layer.used_bytes())


def _held(layer: Any) -> int:
    return _sum(getattr(layer, name, None) for name in ("keys", "values", "indexer_keys"))


def _sum(tensors: Iterable[object]) -> int:
    return sum(t.nbytes for t in tensors if isinstance(t, Tensor))
