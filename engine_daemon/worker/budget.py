"""The memory that caches of all sessions may take together, and who gives way when it is short.

Parked tails first, then snapshots, then whole caches of sessions that stand; the least recently
used session first. Knows no tensors and no sockets.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol, runtime_checkable

from engine_daemon.worker.backends.base import NoMemoryError

SHARE: Final = 0.85
"""Of the memory that is free once the model is loaded."""
Why = Literal["parked", "snapshots", "cache"]


@runtime_checkable
class Frugal(Protocol):
    """A cache that knows what it holds and can do with less."""

    def need(self, more: int) -> int:
        """Bytes that reading `more` positions takes on top of what is held."""
        ...

    def held_bytes(self) -> int:
        """Device memory it holds, tails and snapshots included."""
        ...

    def release_tail(self) -> int:
        """Give the oldest parked tail up; the bytes, 0 when there is none."""
        ...

    def release_snapshot(self) -> int:
        """Give a snapshot up; the bytes, 0 when there is none."""
        ...


@runtime_checkable
class KnowsMemory(Protocol):
    """A backend that can tell how much memory its device has left."""

    def free_bytes(self) -> int | None:
        """Free now; None where nobody says."""
        ...


class Member(Protocol):
    """A session as the budget sees it. `used_ns`: when it last read something."""

    used_ns: int

    @property
    def frugal(self) -> Frugal | None:
        """Its cache, when it holds one that takes part."""
        ...

    def unread(self) -> int:
        """Positions its next forward reads."""
        ...

    def give_back(self) -> None:
        """Free everything."""
        ...


def limit_of(asked: int | None, backend: object) -> int | None:
    """The budget in bytes; None = nobody knows a limit. Ask after loading."""
    if asked is not None:
        return asked
    free = backend.free_bytes() if isinstance(backend, KnowsMemory) else None
    return None if free is None else int(free * SHARE)


def make_room(
    limit: int | None,
    wanting: Member,
    members: Sequence[Member],
    standing: Sequence[Member],
    released: Callable[[Member, int, Why], None],
) -> None:
    """Free what the next forward of `wanting` needs, or raise NoMemoryError.

    `members`: all sessions; `standing`: those whose cache may go as a whole.
    """
    cache = wanting.frugal
    more = wanting.unread()
    if limit is None or cache is None or not more or (need := cache.need(more)) == 0:
        return

    def have() -> int:
        return limit - sum(m.frugal.held_bytes() for m in members if m.frugal is not None)

    oldest_first = sorted(members, key=lambda member: member.used_ns)
    steps: tuple[tuple[Why, Callable[[Frugal], int]], ...] = (
        ("parked", lambda it: it.release_tail()),
        ("snapshots", lambda it: it.release_snapshot()),
    )
    for why, release in steps:
        for member in oldest_first:
            freed = 0
            while need > have() and member.frugal is not None:
                size = release(member.frugal)
                if not size:
                    break
                freed += size
            if freed:
                released(member, freed, why)
    for member in oldest_first:
        if need <= have():
            return
        if member is not wanting and member in standing and member.frugal is not None:
            size = member.frugal.held_bytes()
            member.give_back()
            released(member, size, "cache")
    if need > have():
        raise NoMemoryError(
            f"the cache needs {need} bytes more and the budget has {max(0, have())} left",
            need,
            max(0, have()),
        )
