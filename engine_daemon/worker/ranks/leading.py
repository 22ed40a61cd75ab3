"""The `hf` backend of rank 0: whatever it does to its part of the model, the others do to theirs.

Knows the order in which ranks are told; what the operations are stands in `backends.hf`.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
import torch

from engine_daemon.protocol.values import CacheKind, CacheReport
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.backends.base import (
    Back,
    NoMemoryError,
    ProgressFn,
    Scored,
    SessionCache,
)
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.caches import HfCache
from engine_daemon.worker.checkpoint import Checkpoint
from engine_daemon.worker.memory import free_bytes, told_short
from engine_daemon.worker.placement import Place
from engine_daemon.worker.ranks.leader import Leader
from engine_daemon.worker.ranks.meeting import meet

_HOST: Final = torch.device("cpu")


class RankedCache(HfCache):
    """Rank 0's part of a session's cache; the others hold theirs under the same number.

    Reports are of all ranks together; `need` and `held_bytes`, which the budget asks, of one.
    """

    def __init__(self, leader: Leader, mode: Literal["kv", "none"], **parts: Any) -> None:
        super().__init__(mode, **parts)
        self._leader = leader
        self._number: int | None = None

    @property
    def number(self) -> int:
        """What the other ranks know it by."""
        if self._number is None:
            self._number = self._leader.new_cache(self.mode)
        return self._number

    def go_back(self, ids: Sequence[int], *, park: bool = True) -> Back:
        """See `backends.base.SessionCache`."""
        self._leader.go_back(self.number, ids, park=park)
        with self._leader.together():
            return super().go_back(ids, park=park)

    def release_tail(self) -> int:
        """Move the oldest tail to the host, or drop it; bytes of one rank."""
        self._leader.release(self.number, "tail")
        with self._leader.together():
            return super().release_tail()

    def release_snapshot(self) -> int:
        """Drop a snapshot; its bytes on one rank."""
        self._leader.release(self.number, "snapshot")
        return super().release_snapshot()

    def make_room(self, more: int) -> None:
        """Buffers for `more` positions on every rank, or NoMemoryError and no rank is worse off: a
        rank that finds out in the middle of a forward leaves the others waiting."""
        positions = self.tokens + more
        need = 0 if self.mode == "none" else self.layers.growth(positions)
        if not need:
            return
        self._leader.reserve(self.number, positions, need)
        try:
            with torch.inference_mode():
                self.layers.reserve(positions)
        except RuntimeError as error:
            device = self._device() or _HOST
            said = told_short(error, device)
            raise NoMemoryError(f"rank 0: {said}", need, free_bytes(device)) from error

    def report(self, limit_tokens: int | None, rows_bytes: int | None = None) -> CacheReport:
        """Bytes of all ranks together. Each holds as much as rank 0: what is shared out divides."""
        own = super().report(limit_tokens, rows_bytes)
        ranks = self._leader.ranks
        used, total = self._leader.device_bytes
        return msgspec.structs.replace(
            own,
            growing_bytes=_times(own.growing_bytes, ranks),
            fixed_bytes=_times(own.fixed_bytes, ranks),
            allocated_bytes=_times(own.allocated_bytes, ranks),
            parked_bytes=_times(own.parked_bytes, ranks),
            snapshot_bytes=_times(own.snapshot_bytes, ranks),
            kinds=None if own.kinds is None else [_kind(kind, ranks) for kind in own.kinds],
            device_used_bytes=_together(own.device_used_bytes, used),
            device_total_bytes=_together(own.device_total_bytes, total),
        )

    def free(self) -> None:
        """Give all of it back, on every rank."""
        if self._number is not None:
            self._leader.free(self._number)
        self._number = None
        super().free()


def _times(own: int | None, ranks: int) -> int | None:
    return None if own is None else own * ranks


def _kind(kind: CacheKind, ranks: int) -> CacheKind:
    return msgspec.structs.replace(kind, bytes=kind.bytes * ranks)


def _together(own: int | None, others: int | None) -> int | None:
    return None if own is None or others is None else own + others


class LeadingBackend(HfBackend):
    """See `backends.base.Backend`."""

    def __init__(self, leader: Leader) -> None:
        super().__init__()
        self._leader = leader
        self._least_free: int | None = None

    def fill(
        self, checkpoint: Checkpoint, options: EngineOptions, place: Place, progress: ProgressFn
    ) -> None:
        """All ranks load their part. Raises InspectError (exit 3)."""

        def together(stage: str, done: int, total: int) -> None:
            """Bytes of all ranks, of which each is through with the same files."""
            if not stage.startswith("load"):
                progress(stage, done, total)
                return
            done += self._leader.loaded_bytes()
            progress(stage, done // place.world, total)

        progress("ranks", 0, 0)
        devices = [str(device) for device in place.devices]
        meeting = self._leader.join(options, str(checkpoint.folder), devices)
        with self._leader.together():
            meet(place, meeting.store, meeting.timeout_s)
        super().fill(checkpoint, options, place, together)
        frees = [super().free_bytes(), *self._leader.filled()]
        progress("load", checkpoint.size, checkpoint.size)
        self._least_free = min((free for free in frees if free is not None), default=None)

    def free_bytes(self) -> int | None:
        """Memory that the rank with least of it can have after loading."""
        return self._least_free

    def sum_weights(self, progress: ProgressFn) -> str:
        """A checksum over those of all ranks, in order."""
        own = super().sum_weights(progress)
        return hashlib.sha256("".join([own, *self._leader.part_sums()]).encode()).hexdigest()

    def new_cache(self, mode: Literal["kv", "none"]) -> RankedCache:
        """An empty cache."""
        return RankedCache(self._leader, mode, **self._cache_parts())

    def read(self, ids: Sequence[int], cache: SessionCache, targets: list[int] | None) -> Scored:
        """All ranks read `ids`; the times of each come with it."""
        if not isinstance(cache, RankedCache):
            raise TypeError("a cache of another backend")
        cache.check()
        self._check_ids(ids, cache.tokens)
        cache.make_room(len(ids))
        number = self._leader.read(cache.number, ids, all_rows=targets is not None)
        with self._leader.together():
            scored = super().read(ids, cache, targets)
            times = [scored.forward.ms, *self._leader.read_times(number)]
        forward = msgspec.structs.replace(scored.forward, ranks_ms=times)
        return msgspec.structs.replace(scored, forward=forward)
