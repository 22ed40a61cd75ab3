"""A rank that follows: it waits for orders of rank 0 and does them to its part of the model.

To the hub its pulse alone talks.
"""

from pathlib import Path
from typing import NoReturn

import torch

from engine_daemon.errors import InspectError
from engine_daemon.protocol.packing import unpack_ints
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.caches import HfCache
from engine_daemon.worker.checkpoint import check_folder
from engine_daemon.worker.memory import free_bytes, told_short
from engine_daemon.worker.placement import Place, device_bytes
from engine_daemon.worker.pulse import Pulse
from engine_daemon.worker.ranks import wire
from engine_daemon.worker.ranks.meeting import meet
from engine_daemon.worker.ranks.wire import Channel, GoneError, give_up


class Follower:
    """One rank's part of the model and of all caches."""

    def __init__(self, channel: Channel, rank: int, pulse: Pulse) -> None:
        self._channel = channel
        self._rank = rank
        self._pulse = pulse
        self._backend = HfBackend()
        self._caches: dict[int, HfCache] = {}

    def run(self) -> NoReturn:
        """Load, then one order after the other, until the hub ends this process."""
        try:
            self._load()
            self._pulse.waits()
            while True:
                self._take(self._channel.receive())
        except GoneError:
            give_up("rank 0 has ended")
        except Exception as error:  # noqa: BLE001  edge of the process: nothing can go on after it
            give_up(f"{type(error).__name__}: {error}")

    def _load(self) -> None:
        join = self._channel.receive()
        assert isinstance(join, wire.Join)
        place = Place(tuple(torch.device(name) for name in join.devices), self._rank)
        self._channel.send(wire.Joined())
        order = self._channel.receive()
        assert isinstance(order, wire.Meet)
        meet(place, order.store, order.timeout_s)
        try:
            self._backend.fill(
                check_folder(Path(join.model_dir)), join.options, place, self._progress
            )
        except InspectError as error:
            reply = wire.Failed(code=error.code, message=error.message, hint=error.hint)
            self._channel.send(reply)
            return
        self._channel.send(wire.Filled(free_bytes=self._backend.free_bytes()))

    def _progress(self, stage: str, done: int, total: int) -> None:
        self._pulse.beat()
        if stage.startswith("load"):
            self._channel.send(wire.Loading(done=done))

    def _take(self, order: object) -> None:
        """Do it, and be seen at it."""
        if isinstance(order, wire.Read):
            positions = len(order.ids) // 4
            with self._pulse.during("decode" if positions == 1 else "prefill", positions):
                self._do(order)
        else:
            with self._pulse.during("read", known=False):
                self._do(order)

    def _do(self, order: object) -> None:
        match order:
            case wire.Read():
                self._read(order)
            case wire.NewCache(cache=number, mode=mode):
                self._caches[number] = self._backend.new_cache(mode)
            case wire.Reserve(cache=number, positions=positions):
                self._channel.send(self._reserve(number, positions))
            case wire.GoBack(cache=number, ids=ids, park=park):
                self._caches[number].go_back(unpack_ints("I", ids), park=park)
            case wire.Release(cache=number, what="tail"):
                self._caches[number].release_tail()
            case wire.Release(cache=number):
                self._caches[number].release_snapshot()
            case wire.Free(cache=number):
                self._caches.pop(number).free()
            case wire.SumPart():
                checksum = self._backend.sum_weights(lambda *_: None)
                self._channel.send(wire.PartSummed(checksum=checksum))
            case _:
                raise TypeError(f"unexpected order {type(order).__name__}")

    def _read(self, order: wire.Read) -> None:
        cache, ids = self._caches[order.cache], unpack_ints("I", order.ids)
        forward = self._backend.read(ids, cache, [] if order.all_rows else None).forward
        used, total = device_bytes(self._backend.place.device)
        self._channel.send(
            wire.Done(
                number=order.number,
                ms=forward.ms,
                device_used_bytes=used,
                device_total_bytes=total,
            )
        )

    def _reserve(self, number: int, positions: int) -> wire.Reserved:
        device = self._backend.place.device
        try:
            with torch.inference_mode():
                self._caches[number].layers.reserve(positions)
        except RuntimeError as error:
            return wire.Reserved(problem=told_short(error, device), free_bytes=free_bytes(device))
        return wire.Reserved()
