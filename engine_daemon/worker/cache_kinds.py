"""What a cache holds by kind of layer, counted from its tensors.

Knows transformers' layer classes; no model, no session.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal

from torch import Tensor
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
)

from engine_daemon.protocol.values import CacheKind

_Kind = tuple[str, Literal["growing", "bounded", "fixed"]]


def by_kind(layers: Iterable[Any]) -> list[CacheKind]:
    """One entry a kind that is there, in the order in which the kinds come first.

    Full attention grows with every token, a sliding window up to its length; the recurrent and
    the convolution state of linear attention never do.
    """
    found: dict[_Kind, list[int]] = {}
    for layer in layers:
        # This runs in every step: which class a layer is of is looked up once a class.
        for kind, measure in _parts_of(type(layer)):
            found.setdefault(kind, []).append(measure(layer))
    return [
        CacheKind(kind=kind, layers=len(sizes), bytes=sum(sizes), growth=growth)
        for (kind, growth), sizes in found.items()
    ]


_known: dict[type, tuple[tuple[_Kind, Callable[[Any], int]], ...]] = {}


def _parts_of(layer: type) -> tuple[tuple[_Kind, Callable[[Any], int]], ...]:
    known = _known.get(layer)
    if known is not None:
        return known
    parts: list[tuple[_Kind, Callable[[Any], int]]] = []
    if issubclass(layer, LinearAttentionCacheLayerMixin):
        parts.append((("recurrent", "fixed"), lambda x: _sum(x.recurrent_states.values())))
        parts.append((("convolution", "fixed"), lambda x: _sum(x.conv_states.values())))
    if issubclass(layer, DynamicSlidingWindowLayer):
        parts.append((("sliding_attention", "bounded"), _held))
    elif issubclass(layer, DynamicLayer):
        ours = hasattr(layer, "used_bytes")
        parts.append((("full_attention", "growing"), _used if ours else _held))
    _known[layer] = tuple(parts)
    return _known[layer]


def _used(layer: Any) -> int:
    """Of one of our layers, whose buffers are larger than what is used of them."""
    return int(layer.used_bytes())


def _held(layer: Any) -> int:
    return _sum(getattr(layer, name, None) for name in ("keys", "values", "indexer_keys"))


def _sum(tensors: Iterable[object]) -> int:
    return sum(t.nbytes for t in tensors if isinstance(t, Tensor))
