"""What a forward is about to take, worked out before it: positions, scratch, what is put aside.

Asks the backend and the cache; knows no sessions and no budget.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from engine_daemon.worker.prefill import CHUNK


class Claim(msgspec.Struct, frozen=True):
    """`positions` that the cache has to hold in all (0: as it is), `scratch` bytes only while the
    forward runs, and `aside`, what going back before it puts aside where there is room."""

    positions: int = 0
    scratch: int = 0
    aside: int = 0


@runtime_checkable
class KnowsScratch(Protocol):
    """A backend that can tell what a large forward takes while it runs."""

    def scratch_bytes(self, positions: int, rows: int) -> int:
        """Beyond what one over a chunk takes, for which there is always room."""
        ...


@runtime_checkable
class Parks(Protocol):
    """A cache that puts aside what it held beyond where it goes back to."""

    def parking(self, ids: Sequence[int]) -> int:
        """Bytes that going back to `ids` puts aside."""
        ...


def reading(backend: object, held: int, length: int, chunk: int | None, *, scored: bool) -> Claim:
    """The next forward over a sequence of `length` of which `held` are: at most `chunk` of it, or
    without a cache (None) all. `scored`: every row of logits is kept until it is looked at."""
    left = max(0, length - held)
    count = left if chunk is None else min(left, chunk)
    read = length if chunk is None else count
    return Claim(min(length, held + count), scratch(backend, read, count if scored else 1))


def scratch(backend: object, positions: int, rows: int = 1) -> int:
    """What one forward takes while it runs, beyond one over a chunk; 0 where nobody knows."""
    if positions <= CHUNK and rows == 1:  # every plain step: nothing is asked then
        return 0
    return backend.scratch_bytes(positions, rows) if isinstance(backend, KnowsScratch) else 0


def aside(cache: object, ids: Sequence[int]) -> int:
    """What going back to `ids` puts aside."""
    return cache.parking(ids) if isinstance(cache, Parks) else 0
