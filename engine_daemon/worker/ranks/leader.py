"""Rank 0's side of the sockets to the other ranks: orders out, replies in.

An order goes out before rank 0 does the same itself, so that all ranks meet in its collectives.
Between orders the others wait in their socket, for as long as it takes. Knows no torch.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final, Literal, TypeVar

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.backends.base import NoMemoryError
from engine_daemon.worker.ranks import wire
from engine_daemon.worker.ranks.wire import Channel, GoneError, give_up

TIMEOUT_S: Final = 600.0
_TIMEOUT: Final = "LLM_INSPECT_COLLECTIVE_TIMEOUT_S"
"""Environment variable: how long a collective may take; what NCCL's watchdog has by default."""

R = TypeVar("R")


class Leader:
    """The other ranks, in order. `folder`: the runtime directory, where all meet in a file.

    `device_bytes`: used and total bytes of the others' devices together, as last told; None where
    nobody counts.
    """

    def __init__(self, fds: Sequence[int], folder: Path) -> None:
        self._channels = [Channel(fd, wire.Reply) for fd in fds]
        self._folder = folder
        self.ranks = len(fds) + 1
        self._numbers = count(1)
        self._caches = count(1)
        self._loaded = [0] * len(fds)
        self._waiting: dict[int, object] = {}
        self.device_bytes: tuple[int | None, int | None] = (None, None)

    # Loading ----------------------------------------------------------------------------------

    def join(self, options: EngineOptions, model_dir: str, devices: list[str]) -> wire.Meet:
        """Have all ranks ready to load; where and for how long at most they meet."""
        self._tell(wire.Join(options=options, model_dir=model_dir, devices=devices))
        self._gather(wire.Joined)
        for old in self._folder.glob("ranks-*"):
            old.unlink(missing_ok=True)
        asked = os.environ.get(_TIMEOUT, "")
        timeout = float(asked) if asked.replace(".", "", 1).isdecimal() else TIMEOUT_S
        meet = wire.Meet(store=str(self._folder / f"ranks-{os.getpid()}"), timeout_s=timeout)
        self._tell(meet)
        return meet

    def loaded_bytes(self) -> int:
        """Bytes of the weights files that the other ranks are through with, together."""
        for number, channel in enumerate(self._channels):
            while number not in self._waiting and channel.ready():
                reply = self._received(number)
                if not isinstance(reply, wire.Loading):
                    self._waiting[number] = reply
        return sum(self._loaded)

    def filled(self) -> list[int | None]:
        """Once the others have loaded their part: what each can still have.

        Raises InspectError (exit 3) when one of them could not.
        """
        return [reply.free_bytes for reply in self._gather(wire.Filled)]

    # Operations -------------------------------------------------------------------------------

    def new_cache(self, mode: Literal["kv", "none"]) -> int:
        """Its number."""
        number = next(self._caches)
        self._tell(wire.NewCache(cache=number, mode=mode))
        return number

    def read(self, cache: int, ids: Sequence[int], *, all_rows: bool) -> int:
        """The number of the forward."""
        number = next(self._numbers)
        packed = pack_ints("I", ids)
        self._tell(wire.Read(number=number, cache=cache, ids=packed, all_rows=all_rows))
        return number

    def read_times(self, number: int) -> list[float]:
        """Milliseconds of each of the others, once they are through with the forward."""
        replies = self._gather(wire.Done)
        if any(reply.number != number for reply in replies):
            give_up("the ranks are at different forwards")
        self.device_bytes = (
            _sum([reply.device_used_bytes for reply in replies]),
            _sum([reply.device_total_bytes for reply in replies]),
        )
        return [reply.ms for reply in replies]

    def reserve(self, cache: int, positions: int, need: int) -> None:
        """Raises NoMemoryError when one of the others has no room for `need` bytes."""
        self._tell(wire.Reserve(cache=cache, positions=positions))
        for rank, reply in enumerate(self._gather(wire.Reserved), 1):
            if reply.problem:
                raise NoMemoryError(f"rank {rank}: {reply.problem}", need, reply.free_bytes)

    def go_back(self, cache: int, ids: Sequence[int], *, park: bool) -> None:
        """As `SessionCache.go_back`."""
        self._tell(wire.GoBack(cache=cache, ids=pack_ints("I", ids), park=park))

    def release(self, cache: int, what: Literal["tail", "snapshot"]) -> None:
        """As `release_tail` and `release_snapshot` of a cache."""
        self._tell(wire.Release(cache=cache, what=what))

    def free(self, cache: int) -> None:
        """Forget it."""
        self._tell(wire.Free(cache=cache))

    def part_sums(self) -> list[str]:
        """Checksums of the others' parts."""
        self._tell(wire.SumPart())
        return [reply.checksum for reply in self._gather(wire.PartSummed)]

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Around what all ranks do at once: a rank that fails alone leaves the others waiting, so
        whatever is raised is the end of this worker."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  edge of the process: nothing can go on after it
            give_up(f"{type(error).__name__}: {error}")

    # Sockets ----------------------------------------------------------------------------------

    def _tell(self, order: wire.Message) -> None:
        for rank, channel in enumerate(self._channels, 1):
            try:
                channel.send(order)
            except GoneError:
                give_up(f"rank {rank} has ended")

    def _gather(self, kind: type[R]) -> list[R]:
        """The next reply of each of the others. Raises InspectError when one could not load."""
        return [self._next(number, kind) for number in range(len(self._channels))]

    def _next(self, number: int, kind: type[R]) -> R:
        while True:
            reply = self._waiting.pop(number, None) or self._received(number)
            if isinstance(reply, kind):
                return reply
            if isinstance(reply, wire.Failed):
                raise InspectError(
                    f"rank {number + 1}: {reply.message}",
                    reply.hint,
                    exit_code=Exit.MODEL,
                    code=reply.code,
                )
            if not isinstance(reply, wire.Loading):
                give_up(f"rank {number + 1} says {type(reply).__name__}")

    def _received(self, number: int) -> object:
        try:
            reply = self._channels[number].receive()
        except GoneError:
            give_up(f"rank {number + 1} has ended")
        if isinstance(reply, wire.Loading):
            self._loaded[number] = reply.done
        return reply


def _sum(sizes: list[int | None]) -> int | None:
    """None when one is not known."""
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
