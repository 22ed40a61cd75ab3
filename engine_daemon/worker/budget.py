"""The memory that caches of all sessions may take together, and who gives way when it is short.

Parked tails first, then snapshots, then whole caches of sessions that stand; the least recently
used session first. Knows no tensors and no sockets.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol, runtime_checkable

from engine_daemon.sizes import sized
from engine_daemon.worker.backends.base import NoMemoryError
from engine_daemon.worker.claims import Claim

SHARE: Final = 0.85
"""Of the memory that is free once the model is loaded."""
_NAMED: Final = 3
"""Sessions that are named when there is no room."""
Why = Literal["parked", "snapshots", "cache"]


@runtime_checkable
class Frugal(Protocol):
    """A cache that knows what it holds and can do with less."""

    def need(self, positions: int) -> int:
        """Bytes that holding `positions` in all takes on top of what is held."""
        ...

    def has_put_aside(self) -> bool:
        """True once after a tail or a snapshot was made, for which nobody was asked."""
        ...

    def fitting(self, room: int) -> int | None:
        """Positions it can hold in all when it grows by `room` bytes; None where it has no say."""
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
    def id(self) -> str:
        """What people know it by."""
        ...

    @property
    def frugal(self) -> Frugal | None:
        """Its cache, when it holds one that takes part."""
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
    claim: Claim,
    sessions: Callable[[], tuple[Sequence[Member], Sequence[Member]]],
    released: Callable[[Member, int, Why], None],
) -> bool:
    """Free what the next forward of `wanting` needs, or raise NoMemoryError. False: all but what
    going back would put aside has room.

    `sessions`: all of them, and those whose cache may go as a whole; asked for only when something
    is taken. What was put aside before without asking has to fit, too.
    """
    cache = wanting.frugal
    if limit is None:
        return True
    need = claim.scratch
    grown = False
    if cache is not None:
        need += cache.need(claim.positions) if claim.positions else 0
        grown = cache.has_put_aside()
    if need + claim.aside == 0 and not grown:
        return True

    members, standing = sessions()

    def have() -> int:
        return limit - sum(m.frugal.held_bytes() for m in members if m.frugal is not None)

    oldest_first = sorted(members, key=lambda member: member.used_ns)
    _release_aside(oldest_first, lambda: need + claim.aside > have(), released)
    for member in oldest_first:
        if not need or need <= have():
            break
        if member is not wanting and member in standing and member.frugal is not None:
            size = member.frugal.held_bytes()
            member.give_back()
            released(member, size, "cache")
    if need and need > have():
        raise _no_memory(limit, need, max(0, have()), wanting, members)
    return need + claim.aside <= have()


def _release_aside(
    oldest_first: Sequence[Member],
    short: Callable[[], bool],
    released: Callable[[Member, int, Why], None],
) -> None:
    """Tails, then snapshots, until it is no longer `short`."""
    steps: tuple[tuple[Why, Callable[[Frugal], int]], ...] = (
        ("parked", lambda it: it.release_tail()),
        ("snapshots", lambda it: it.release_snapshot()),
    )
    for why, release in steps:
        for member in oldest_first:
            freed = 0
            while short() and member.frugal is not None:
                size = release(member.frugal)
                if not size:
                    break
                freed += size
            if freed:
                released(member, freed, why)


def _no_memory(
    limit: int, need: int, have: int, wanting: Member, members: Sequence[Member]
) -> NoMemoryError:
    """Needed, present, who holds the rest, and what would fit."""
    held = [(m.frugal.held_bytes(), m.id) for m in members if m.frugal is not None]
    largest = sorted((it for it in held if it[0]), reverse=True)[:_NAMED]
    who = ", ".join(f"{sized(size)} by {name}" for size, name in largest)
    cache = wanting.frugal
    fits = None if cache is None else cache.fitting(have)
    hint = "close other sessions" if len(largest) > 1 else "use another device or a smaller --dtype"
    if fits:
        hint = f"{fits} positions fit (--max-context {fits}), or {hint}"
    return NoMemoryError(
        f"{sized(need)} more are needed and the budget of {sized(limit)} has "
        f"{sized(have)} left{f', held: {who}' if who else ''}; {hint}",
        need,
        have,
    )
