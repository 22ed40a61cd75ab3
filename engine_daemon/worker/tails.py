"""What a cache puts aside to go back without reading again: tails of paths, snapshots of state.

A tail holds keys and values of the positions a path had beyond where it was left; a snapshot holds
what cannot be cropped (recurrent state, sliding windows) at one position. Both are found by ids.
Knows tensors and layers; no sessions and no budget.
"""

import copy
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import torch
from torch import Tensor

from engine_daemon.protocol.packing import pack_ints
from engine_daemon.worker.common import common

SNAPSHOT_EVERY: Final = 32
"""Steps between two snapshots, unless it is set."""
MOST_HOST_BYTES: Final = 2 * 1024**3
"""What one session's tails may take in host memory once they had to leave the device."""
MOST_SNAPSHOTS: Final = 32
"""Snapshots of one session; the first, at the prompt's end, goes last."""


def tensors_in(thing: object) -> Iterable[Tensor]:
    """Tensors among an object's attributes, dictionaries and lists included."""
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from tensors_in(value)
    elif isinstance(thing, list | tuple):
        for value in thing:
            yield from tensors_in(value)
    elif hasattr(thing, "__dict__"):
        yield from tensors_in(vars(thing))


T = TypeVar("T")


def moved(thing: T, device: torch.device | None) -> T:
    """The same object with every tensor among its attributes and dictionaries on `device`."""
    inside: dict[Any, Any] = thing if isinstance(thing, dict) else vars(thing)
    for name, value in inside.items():
        if isinstance(value, Tensor):
            inside[name] = value if device is None else value.to(device)
        elif isinstance(value, dict) or hasattr(value, "__dict__"):
            moved(value, device)
    return thing


@dataclass(slots=True)
class Snapshot:
    """Copies of the layers that cannot be cropped, by their number, after `position` ids."""

    position: int
    digest: bytes
    layers: dict[int, object]
    bytes: int


def snapshot_of(layers: dict[int, object], ids: Sequence[int]) -> Snapshot:
    """Copy the layers as they stand after `ids`."""
    copies = {number: copy.deepcopy(layer) for number, layer in layers.items()}
    size = sum(t.nbytes for layer in copies.values() for t in tensors_in(layer))
    return Snapshot(len(ids), digest(ids), copies, size)


def digest(ids: Sequence[int]) -> bytes:
    """A name for a sequence of ids."""
    return hashlib.blake2b(pack_ints("I", ids), digest_size=16).digest()


@dataclass(slots=True)
class Tail:
    """Keys and values of positions [start, len(ids)) of a path, a pair for each growing layer.

    `state`: a snapshot at its end, where the model has layers that cannot be cropped. `moved`: it
    left the device for the host.
    """

    ids: list[int]
    start: int
    pairs: list[tuple[Tensor, Tensor]]
    state: Snapshot | None
    moved: bool = False

    @property
    def bytes(self) -> int:
        """All of it."""
        own = sum(t.nbytes for pair in self.pairs for t in pair)
        return own + (self.state.bytes if self.state is not None else 0)

    @property
    def on_host(self) -> bool:
        """Its tensors are in host memory already."""
        state = tensors_in(self.state.layers) if self.state is not None else ()
        pairs = (t for pair in self.pairs for t in pair)
        return all(t.device.type == "cpu" for t in (*pairs, *state))

    def to_host(self) -> None:
        """Move everything to host memory."""
        host = torch.device("cpu")
        self.pairs = [(keys.to(host), values.to(host)) for keys, values in self.pairs]
        if self.state is not None:
            moved(self.state.layers, host)
        self.moved = True

    def reach(self, ids: Sequence[int], held: int) -> int:
        """How many of `ids` are held once this tail follows the `held` first ones."""
        if self.start > held:
            return held
        return max(held, common(self.ids, ids))


class Snapshots:
    """The ring of one session."""

    def __init__(self, every: int | None) -> None:
        self.every = SNAPSHOT_EVERY if every is None else max(1, every)
        self._ring: list[Snapshot] = []

    def add(self, taken: Snapshot) -> None:
        """Keep it; the oldest but the first makes room."""
        self._ring.append(taken)
        if len(self._ring) > MOST_SNAPSHOTS:
            del self._ring[1]

    def best(self, ids: Sequence[int], most: int, others: Iterable[Snapshot]) -> Snapshot | None:
        """The latest one, of these and `others`, that lies on `ids` at `most` positions in."""
        fitting = [s for s in (*self._ring, *others) if s.position <= most]
        for found in sorted(fitting, key=lambda s: s.position, reverse=True):
            if found.digest == digest(ids[: found.position]):
                return found
        return None

    @property
    def bytes(self) -> int:
        """All of them."""
        return sum(s.bytes for s in self._ring)

    def __len__(self) -> int:
        return len(self._ring)

    def release(self) -> int:
        """Drop the oldest but the first, or the first when it is alone; the bytes of it."""
        if not self._ring:
            return 0
        return self._ring.pop(1 if len(self._ring) > 1 else 0).bytes

    def clear(self) -> None:
        """Drop all."""
        self._ring.clear()


def storage_bytes(tensors: Sequence[Tensor]) -> int:
    """Bytes of the distinct storages behind `tensors`: a view keeps the whole of it alive."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())
