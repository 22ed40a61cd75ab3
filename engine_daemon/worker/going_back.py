"""Going back in a cache: crop, snapshots, tails that are put aside, and what all of it holds.

The part of a session's cache that knows about other paths than the one it holds; what a layer is
stands in `caches`. Knows no sessions and no budget.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from engine_daemon.worker.backends.base import Back
from engine_daemon.worker.common import common
from engine_daemon.worker.tails import (
    MOST_HOST_BYTES,
    Snapshots,
    Tail,
    moved,
    snapshot_of,
    storage_bytes,
    tensors_in,
)


class GoesBack:
    """A cache of layers, the ids it holds, and what it put aside.

    `ids` are those that are held (`tokens` of them); `tails` the ends of paths that were left, the
    latest last.
    """

    def __init__(
        self,
        mode: Literal["kv", "none"],
        make_layers: Callable[[], Any],
        snapshot_every: int | None,
        position_bytes: int,
    ) -> None:
        self.mode = mode
        self.layers = make_layers()
        self.ids: list[int] = []
        self.tokens = 0
        self.tails: list[Tail] = []
        self.snapshots = Snapshots(snapshot_every)
        self._make_layers = make_layers
        self._position_bytes = position_bytes
        self._snapshot_at: int | None = None
        self._lost = False
        self._put_aside = False

    def _stateful(self) -> dict[int, object]:
        """Layers that cannot be cropped, by their number."""
        return {number: self.layers.layers[number] for number in self.layers.stateful}

    def _tensors(self) -> Iterator[Tensor]:
        """Everything the layers hold."""
        raise NotImplementedError

    def before_step(self) -> None:
        """One more id is about to be read: take a snapshot when one is due.

        The first is due at the prompt's end.
        """
        last = self._snapshot_at
        due = last is None or self.tokens - last >= self.snapshots.every
        if self.mode == "none" or not self.tokens or not due or not self.layers.stateful:
            return
        with torch.inference_mode():
            self.snapshots.add(snapshot_of(self._stateful(), self.ids))
        self._snapshot_at, self._put_aside = self.tokens, True

    def go_back(self, ids: Sequence[int], *, park: bool = True) -> Back:
        """See `backends.base.SessionCache`. Growing layers are cropped; for the others the nearest
        snapshot is taken."""
        same = common(self.ids, ids)
        if self.mode == "none":
            touched = same < self.tokens
            self.ids, self.tokens = self.ids[:same], same
            return Back(same, "crop" if touched else None)
        with torch.inference_mode():
            return self._go_back(list(ids), same, park)

    def _go_back(self, ids: list[int], same: int, park: bool) -> Back:
        held, stateful, growing = self.tokens, self._stateful(), self.layers.growing()
        left = same < held
        if left and park:
            self._park(same, stateful)
        if left:
            for layer in growing:
                layer.keep_first(same)
        reach = self._unpark(ids, same) if growing else len(ids)
        at, method = reach, "crop"
        if stateful and (left or reach > held):
            at, method = self._restore(ids, reach, None if left else held), "snapshot"
        for layer in growing:
            layer.keep_first(at)
        self.ids, self.tokens, self._lost = ids[:at], at, False
        self._snapshot_at = at if stateful and at else self._snapshot_at
        self.tails = [tail for tail in self.tails if common(tail.ids, self.ids) < len(tail.ids)]
        if at == 0 and (held or left):
            self.layers = self._make_layers()
            self._snapshot_at = None
            return Back(0, "prefill")
        if not left and at == held:
            return Back(at, None)
        return Back(at, "snapshot" if method == "snapshot" else "crop")

    def _park(self, start: int, stateful: dict[int, object]) -> None:
        """Put aside what is held from position `start` on."""
        pairs = [
            (
                layer.keys[..., start : self.tokens, :].clone(),
                layer.values[..., start : self.tokens, :].clone(),
            )
            for layer in self.layers.growing()
        ]
        state = snapshot_of(stateful, self.ids) if stateful else None
        self.tails.append(Tail(self.ids, start, pairs, state))
        parked = [tail for tail in self.tails if tail.moved]
        while sum(tail.bytes for tail in parked) > MOST_HOST_BYTES:
            self.tails.remove(parked.pop(0))
        self._put_aside = True

    def parking(self, ids: Sequence[int]) -> int:
        """Bytes that going back to `ids` puts aside."""
        same = common(self.ids, ids)
        if self.mode == "none" or same >= self.tokens:
            return 0
        states = {id(t): t.nbytes for x in self._stateful().values() for t in tensors_in(x)}
        growing = sum(layer.position_bytes for layer in self.layers.growing())
        return int(growing * (self.tokens - same) + sum(states.values()))

    def has_put_aside(self) -> bool:
        """True once after a tail or a snapshot was made."""
        grown, self._put_aside = self._put_aside, False
        return grown

    def _unpark(self, ids: list[int], held: int) -> int:
        """Append from tails what follows the first `held` of `ids`; positions held then."""
        while self.tails:
            tail = max(self.tails, key=lambda t: t.reach(ids, held))
            reach = tail.reach(ids, held)
            if reach == held:
                break
            part = slice(held - tail.start, reach - tail.start)
            for layer, (keys, values) in zip(self.layers.growing(), tail.pairs, strict=True):
                layer.put(held, keys[..., part, :], values[..., part, :])
            held = reach
        return held

    def _device(self) -> torch.device | None:
        """Where the layers are; None when they hold nothing."""
        return next((t.device for t in self._tensors()), None)

    def _restore(self, ids: list[int], most: int, now: int | None) -> int:
        """Layers that cannot be cropped, as they were at the nearest position; that position.

        `now`: where they stand and may stay, when that is on the way.
        """
        states = [tail.state for tail in self.tails if tail.state is not None]
        best = self.snapshots.best(ids, most, states)
        if best is None or (now is not None and now >= best.position):
            return now or 0
        for number, layer in best.layers.items():
            self.layers.layers[number] = moved(copy.deepcopy(layer), self._device())
        return best.position

    def release_tail(self) -> int:
        """Move the oldest tail to the host, or drop it where that is where caches are anyway."""
        device = self._device()
        for tail in self.tails:
            if not tail.on_host:
                size = tail.bytes
                tail.to_host()
                return size
        on_host = device is None or device.type == "cpu"
        return self.tails.pop(0).bytes if self.tails and on_host else 0

    def release_snapshot(self) -> int:
        """Drop a snapshot; its bytes."""
        return self.snapshots.release()

    def parked_bytes(self) -> int:
        """What tails hold."""
        return sum(tail.bytes for tail in self.tails)

    def held_bytes(self) -> int:
        """Device memory: buffers, states, snapshots, and tails that are still there."""
        tails = sum(tail.bytes for tail in self.tails if not tail.moved)
        return storage_bytes(list(self._tensors())) + self.snapshots.bytes + tails

    def need(self, positions: int) -> int:
        """Bytes that holding `positions` in all takes on top of what is held."""
        if self.mode == "none":
            return 0
        first = next(iter(self.layers.growing()), None)
        if first is not None and not first.is_initialized:
            return self._position_bytes * int(first.wanted(positions))
        return int(self.layers.growth(positions))

    def fitting(self, room: int) -> int | None:
        """Positions that buffers grown by `room` bytes can hold; None without growing layers."""
        layers = list(self.layers.growing())
        position = sum(layer.position_bytes for layer in layers) or self._position_bytes
        if self.mode == "none" or not position:
            return None
        buffers = [layer.position_bytes * layer.capacity for layer in layers]
        # While they grow, one layer after the other has its old buffers as well.
        return int(max(0, sum(buffers) + room - max(buffers, default=0)) // position)
