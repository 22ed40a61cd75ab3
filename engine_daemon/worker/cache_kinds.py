"""What a cache holds by kind of layer, counted from its tensors.

Knows transformers' layer classes; no model, no session.
"""

from collections.abc import Iterable
from typing import Literal

from torch import Tensor
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
)

from engine_daemon.protocol.values import CacheKind

Growth = Literal["growing", "bounded", "fixed"]


def by_kind(layers: Iterable[object]) -> list[CacheKind]:
    """One entry a kind that is there, in the order in which the kinds come first.

    Full attention grows with every token, a sliding window up to its length; the recurrent and
    the convolution state of linear attention never do.
    """
    found: dict[tuple[str, Growth], list[int]] = {}
    for layer in layers:
        for kind, growth, size in _parts(layer):
            found.setdefault((kind, growth), []).append(size)
    return [
        CacheKind(kind=kind, layers=len(sizes), bytes=sum(sizes), growth=growth)
        for (kind, growth), sizes in found.items()
    ]


def _parts(layer: object) -> Iterable[tuple[str, Growth, int]]:
    if isinstance(layer, LinearAttentionCacheLayerMixin):
        yield "recurrent", "fixed", _sum(layer.recurrent_states.values())
        yield "convolution", "fixed", _sum(layer.conv_states.values())
    if isinstance(layer, DynamicSlidingWindowLayer):
        yield "sliding_attention", "bounded", _held(layer)
    elif isinstance(layer, DynamicLayer):
        used = getattr(layer, "used_bytes", None)  # ours hold more than they use
        yield "full_attention", "growing", used() if used is not None else _held(layer)


def _held(layer: object) -> int:
    return _sum(getattr(layer, name, None) for name in ("keys", "values", "indexer_keys"))


def _sum(tensors: Iterable[object]) -> int:
    return sum(t.nbytes for t in tensors if isinstance(t, Tensor))
