"""What a session holds on the device: keys and values in buffers that grow, or nothing at all.

Full-attention layers keep preallocated buffers and hand attention a slice of the used length; other
kinds of layer keep transformers' own state. Knows no sessions, budgets or models.
"""

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    DummyLayer,
    DynamicCache,
    DynamicLayer,
    LinearAttentionCacheLayerMixin,
)

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.values import CacheReport
from engine_daemon.worker.cache_kinds import Kinds
from engine_daemon.worker.going_back import GoesBack
from engine_daemon.worker.tails import storage_bytes

SMALLEST_CAPACITY = 256
"""Positions of the first allocation, before it doubles."""
_DOUBLES_BELOW = 1024
_GROWS_BY = 16
"""From there on buffers grow by one part in so many, or the smallest capacity: attention over whole
buffers then reads little that is not used."""


class GrowingLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped
    """One full-attention layer: `[1, heads, capacity, dim]` buffers, of which `length` is used.

    The library's own layer concatenates, which copies everything it holds at each token.
    `position_bytes`: what a position takes in both buffers, 0 before the first states. It and
    `capacity` are what the tensors say, looked up once: every step reports them for every layer.
    """

    def __init__(self, limit: int | None = None) -> None:
        super().__init__()
        self.length = self.capacity = self.position_bytes = 0
        self._limit = limit

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Empty buffers of the shape and place of the first states."""
        self.device = key_states.device
        self.keys = key_states[..., :0, :].clone()
        self.values = value_states[..., :0, :].clone()
        self.is_initialized = True
        shapes = ((*x.shape[:-2], x.shape[-1]) for x in self.buffers())
        self.position_bytes = key_states.itemsize * sum(map(math.prod, shapes))

    def reserve(self, positions: int) -> None:
        """Make room for `positions` in all: doubling, up to the limit."""
        if not self.is_initialized or positions <= self.capacity:
            return
        wanted = self.wanted(positions)
        # Both or none of them, should there be no memory for the second.
        self.keys, self.values = (self._grown(buffer, wanted) for buffer in self.buffers())
        self.capacity = int(self.keys.shape[-2])

    def wanted(self, positions: int) -> int:
        """The capacity that `reserve` allocates."""
        wanted = max(SMALLEST_CAPACITY, self.capacity)
        while wanted < positions:
            more = max(SMALLEST_CAPACITY, wanted // _GROWS_BY)
            wanted += wanted if wanted < _DOUBLES_BELOW else more
        return wanted if self._limit is None else max(positions, min(wanted, self._limit))

    def _grown(self, buffer: Tensor, capacity: int) -> Tensor:
        grown = buffer.new_empty((*buffer.shape[:-2], capacity, buffer.shape[-1]))
        grown[..., : self.length, :] = buffer[..., : self.length, :]
        grown[..., self.length :, :] = 0
        return grown

    def growth(self, positions: int) -> int:
        """Bytes that `reserve` takes on top, while old and new buffers are both there."""
        if not self.is_initialized or positions <= self.capacity:
            return 0
        return self.position_bytes * self.wanted(positions)

    def put(self, start: int, keys: Tensor, values: Tensor) -> None:
        """Write states at positions from `start` on; they are the last ones then."""
        end = start + keys.shape[-2]
        self.reserve(end)
        self.keys[..., start:end, :] = keys
        self.values[..., start:end, :] = values
        self.length = end

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        *args: object,
        **kwargs: object,
    ) -> tuple[Tensor, Tensor]:
        """Write the new states behind the others; everything used so far, as views."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[-2]
        self.reserve(end)
        self.keys[..., self.length : end, :] = key_states
        self.values[..., self.length : end, :] = value_states
        self.length = end
        return self.keys[..., :end, :], self.values[..., :end, :]

    def get_seq_length(self) -> int:
        """Positions used."""
        return self.length

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last positions (given as a negative count, as transformers does)."""
        self.keep_first(max(0, self.length - abs(tokens_to_remove)))

    def keep_first(self, positions: int) -> None:
        """Forget what is beyond them. Values that are not used stay finite: attention over whole
        buffers weighs them with 0."""
        if positions < self.length:
            with torch.inference_mode():
                self.values[..., positions : self.length, :] = 0
            self.length = positions

    def reset(self) -> None:
        """Drop the buffers."""
        super().reset()
        self.length = self.capacity = self.position_bytes = 0

    def buffers(self) -> tuple[Tensor, Tensor]:
        """Both buffers, whole."""
        return self.keys, self.values


def build_layers(config: object, limit: int | None) -> "TransformersCache":
    """A cache for the model of `config`: ours for full attention, the library's for the rest."""
    cache = DynamicCache(config=config)
    layers = [
        # The exact class: subclasses of it are other kinds of layer.
        GrowingLayer(limit) if type(layer) is DynamicLayer else layer
        for layer in cache.layers
    ]
    return TransformersCache(layers)


class Buffers(NamedTuple):
    """What all full-attention layers have together: bytes a position, bytes in all, and positions
    that fit (None without such layers)."""

    position_bytes: int = 0
    bytes: int = 0
    capacity: int | None = None


class TransformersCache(Cache):  # type: ignore[misc]  # transformers is untyped
    """The object the model's forward gets.

    `stateful`: numbers of the layers that cannot be cropped; `kinds` of all. A layer may be
    replaced by one of its class, full-attention layers never are.
    """

    def __init__(self, layers: Sequence[object]) -> None:
        super().__init__(layers=list(layers))
        self.kinds = Kinds(layers)
        self._growing = [layer for layer in layers if isinstance(layer, GrowingLayer)]
        self.stateful = [
            number
            for number, layer in enumerate(layers)
            if not isinstance(layer, (GrowingLayer, DummyLayer))
        ]
        self._buffers = Buffers()
        self._buffers_of: tuple[int, int] | None = None

    def growing(self) -> list[GrowingLayer]:
        """Its full-attention layers."""
        return self._growing

    def reserve(self, positions: int) -> None:
        """Make room in all layers before any of them changes."""
        if positions > (self.buffers().capacity or 0):
            self._buffers_of = None
            for layer in self._growing:
                layer.reserve(positions)

    def buffers(self) -> Buffers:
        """The sums over layers, which grow together: looked up once for each size of the first.
        Every step asks, and to touch some dozen layers costs more than all else in a report."""
        if not self._growing:
            return self._buffers
        first = self._growing[0]
        of = first.capacity, first.position_bytes
        if of != self._buffers_of:
            sizes = [layer.position_bytes for layer in self._growing]
            capacities = [layer.capacity for layer in self._growing]
            taken = sum(map(operator.mul, sizes, capacities))
            self._buffers, self._buffers_of = Buffers(sum(sizes), taken, min(capacities)), of
        return self._buffers

    def used_bytes(self) -> int:
        """What the used positions of all full-attention layers occupy."""
        return self.buffers().position_bytes * self._growing[0].length if self._growing else 0

    def growth(self, positions: int) -> int:
        """Bytes that `reserve` takes on top: one layer after the other lets its old buffers go."""
        if positions <= (self.buffers().capacity or 0):
            return 0
        layers = [layer for layer in self._growing if layer.growth(positions)]
        olds = [layer.position_bytes * layer.capacity for layer in layers]
        return sum(layer.growth(positions) for layer in layers) - sum(olds) + max(olds, default=0)


def layer_tensors(layer: object) -> Iterator[Tensor]:
    """Key and value tensors that a layer of transformers' own holds."""
    for name in ("keys", "values", "indexer_keys"):
        tensor = getattr(layer, name, None)
        if isinstance(tensor, Tensor):
            yield tensor


def state_tensors(layer: object) -> Iterator[Tensor]:
    """Recurrent and convolution states of a layer."""
    if isinstance(layer, LinearAttentionCacheLayerMixin):
        for states in (layer.conv_states, layer.recurrent_states):
            yield from (state for state in states.values() if state is not None)


class HfCache(GoesBack):
    """The cache of one session. In mode `none` it remembers the ids and keeps no tensors.

    `make_layers` gives empty layers, which hold nothing before their first forward;
    `position_bytes`: what a position takes in the growing layers, before there are any tensors;
    `device_bytes`: what this process takes on the device, of all there is (None where nobody
    counts).
    """

    def __init__(
        self,
        mode: Literal["kv", "none"],
        make_layers: Callable[[], TransformersCache],
        snapshot_every: int | None = None,
        position_bytes: int = 0,
        device_bytes: Callable[[], tuple[int | None, int | None]] | None = None,
    ) -> None:
        super().__init__(mode, make_layers, snapshot_every, position_bytes)
        self._device_bytes = device_bytes

    def check(self) -> None:
        """InspectError (`engine`) when a failed forward left the cache unusable."""
        if self._lost:
            raise InspectError(
                "the session's cache was lost in a failed forward",
                "Close the session and open it again",
                exit_code=Exit.ENGINE,
                code="engine",
            )

    def roll_back(self) -> None:
        """After a failed forward: back to `tokens` positions, or `lost` where a layer cannot."""
        if not self.layers.stateful:
            for layer in self.layers.growing():
                layer.keep_first(self.tokens)
            return
        self.layers = self._make_layers()
        self._lost = self.tokens > 0

    def _tensors(self) -> Iterator[Tensor]:
        for layer in self.layers.layers:
            yield from layer_tensors(layer)
            yield from state_tensors(layer)

    def report(self, limit_tokens: int | None, rows_bytes: int | None = None) -> CacheReport:
        """Bytes and positions, from the real tensors.

        `growing_bytes`: the used slice of our buffers, and what a sliding window holds;
        `allocated_bytes`: every storage, states included.
        """
        kinds = self.layers.kinds.held(self.layers.layers, self.layers.used_bytes())
        fixed = sum([kind.bytes for kind in kinds if kind.growth == "fixed"])
        buffers = self.layers.buffers()
        allocated = buffers.bytes
        if self.layers.stateful:
            others = self._stateful().values()
            states = [t for x in others for t in (*layer_tensors(x), *state_tensors(x))]
            allocated += storage_bytes(states)
        used, total = (None, None) if self._device_bytes is None else self._device_bytes()
        return CacheReport(
            mode=self.mode,
            tokens=self.tokens if self.mode == "kv" else 0,
            growing_bytes=sum([kind.bytes for kind in kinds]) - fixed,
            fixed_bytes=fixed,
            allocated_bytes=allocated,
            capacity_tokens=buffers.capacity,
            limit_tokens=limit_tokens,
            parked_bytes=self.parked_bytes(),
            snapshot_bytes=self.snapshots.bytes,
            rows_bytes=rows_bytes,
            kinds=kinds if self.mode == "kv" else None,
            device_used_bytes=used,
            device_total_bytes=total,
        )

    def free(self) -> None:
        """Give all of it back."""
        self.layers = self._make_layers()
        self.ids = []
        self.tokens = 0
        self.tails.clear()
        self.snapshots.clear()
        self._snapshot_at, self._lost = None, False
