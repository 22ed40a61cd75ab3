"""Who is attached: one record a viewer, with its rate limit and the sessions it follows.

Knows no sockets; the hub sends what `fanout` makes.
"""

import os
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from engine_daemon.protocol.state import ViewerInfo
from engine_daemon.protocol.viewing import Role

RATE: Final = 100.0
"""`cmd`, `ask` and `hello` a second."""
BURST: Final = 200.0
MOST_ASKS: Final = 4
MOST_ASKS_IN_ALL: Final = 32
"""Reads that may be unanswered, of one viewer and of all together."""
QUIET_S: Final = 2.5
"""After so long without a word the hub probes whether the viewer's connection still stands."""
ACKED_WITHIN_S: Final = 1.0
"""A viewer that keeps up acknowledges what it was sent so soon, see `following.ACK_S`."""
SILENT_S: Final = 30.0
"""After so long without a word a viewer is forgotten; it says hello again when it wakes."""


@dataclass(slots=True)
class Following:
    """A viewer's cursor into one log. Credit is bytes sent and not yet acknowledged.

    `snapshot`: what is sent before the events from `next` on, in parts.
    """

    session: str
    next: int
    win_bytes: int
    acked: int = 0
    in_flight: deque[tuple[int, int, float]] = field(default_factory=deque)
    outstanding: int = 0
    last_flush: float = 0.0
    snapshot: list[bytes] = field(default_factory=list)
    parts_sent: int = 0
    parts_acked: int = 0

    def sent(self, to: int, size: int, now: float) -> None:
        """A batch up to `to` of `size` bytes is on its way."""
        self.next = to
        self.in_flight.append((to, size, now))
        self.outstanding += size
        self.last_flush = now

    @property
    def has_credit(self) -> bool:
        """Something may be on its way, or nothing is."""
        return self.outstanding < self.win_bytes or self.outstanding == 0

    def next_part(self) -> bytes | None:
        """The part of the snapshot that may go now."""
        if self.parts_sent == len(self.snapshot) or not self.has_credit:
            return None
        return self.snapshot[self.parts_sent]

    def part_sent(self) -> None:
        """It is on its way."""
        self.outstanding += len(self.snapshot[self.parts_sent])
        self.parts_sent += 1

    def had(self, now: float) -> int:
        """Events it has, or will acknowledge soon: what was sent a moment ago is no lag."""
        late = self.in_flight and now - self.in_flight[0][2] > ACKED_WITHIN_S
        return self.acked if late or self.snapshot else self.next

    def acknowledge(self, upto: int, parts: int = 0) -> None:
        """Everything before `upto`, and so many parts, arrived: their credit returns."""
        for part in range(self.parts_acked, min(parts, self.parts_sent)):
            self.outstanding -= len(self.snapshot[part])
            self.parts_acked = part + 1
        if self.snapshot and self.parts_acked == len(self.snapshot):
            self.snapshot, self.parts_sent, self.parts_acked = [], 0, 0
        self.acked = max(self.acked, min(upto, self.next))
        while self.in_flight and self.in_flight[0][0] <= self.acked:
            self.outstanding -= self.in_flight.popleft()[1]


@dataclass(slots=True)
class Viewer:
    """One attached client. `uid` is its process's, as the system tells it; `asks`: reads of it that
    are not answered yet; `owed_state`: its queue was full when the last state was told."""

    route: bytes
    who: str
    client: str
    role: Role
    heard: float
    uid: int = field(default_factory=os.getuid)
    id: bytes = field(default_factory=lambda: os.urandom(16))
    following: dict[str, Following] = field(default_factory=dict)
    tokens: float = BURST
    refilled: float = 0.0
    asks: int = 0
    owed_state: bool = False

    def allow(self, now: float) -> bool:
        """Take one token of the rate limit; False when there is none."""
        self.tokens = min(BURST, self.tokens + (now - self.refilled) * RATE)
        self.refilled = now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True

    def lag(self, heads: dict[str, int], now: float) -> int:
        """Events it does not have yet; the worst over what it follows."""
        had = {one.session: one.had(now) for one in self.following.values()}
        return max((heads.get(session, at) - at for session, at in had.items()), default=0)

    def info(self, heads: dict[str, int], holds: list[str], now: float) -> ViewerInfo:
        """The record as others see it."""
        return ViewerInfo(
            viewer=self.id,
            who=self.who,
            client=self.client,
            role=self.role,
            lag=self.lag(heads, now),
            sessions=[name for name in self.following if name in heads],
            holds=[name for name in holds if name in heads],
            uid=None if self.uid == os.getuid() else self.uid,
        )
