"""What several viewers of one session need: who may command it, and what who joins late has missed.

Bodies of messages, as in `commands`. Knows no sockets and no clocks.
"""

from typing import Literal

import msgspec

Role = Literal["observer", "controller"]
LeaseWord = Literal["acquire", "renew", "release", "take"]


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of message bodies; the header's `t` names the type."""


class Lease(Message, frozen=True, kw_only=True):
    """Viewer → hub: about the right to command a session; answered with `reply` to `cmd`.

    `acquire` a free one, `renew` one's own, `release` it, `take` it from whoever has it.
    `lease_no`: the number one believes to have (`renew`, `release`). `t_ns`: as in a command.
    """

    cmd: bytes
    session: str
    do: LeaseWord
    lease_no: int = 0
    t_ns: int = 0


class Lost(Message, frozen=True, kw_only=True):
    """Hub → viewer: the lease of `session` with number `lease` is `by`'s now."""

    session: str
    lease: int
    by: str


class Removed(Message, frozen=True, kw_only=True):
    """Hub → viewer: the recording of `session`, which it follows and which was closed, is gone.

    `by`: who removed it; empty where that is not known.
    """

    session: str
    by: str


class Snapshot(Message, frozen=True, kw_only=True):
    """Hub → viewer: part `part` of `parts` of the session folded up to event `seq`; joined they are
    an image (`recording.columns`). Events from `seq` follow the last one."""

    session: str
    seq: int
    part: int
    parts: int
    columns: bytes
