"""What a rank of the worker says of itself, from a thread of its own: part of `worker`.

Knows no sockets.
"""

from typing import Literal

from engine_daemon.protocol.viewing import Message

WorkPhase = Literal["loading", "prefill", "decode", "idle", "paused", "measure", "check", "read"]
"""What a rank is at; `read`: it makes something of a message of the hub."""


class Alive(Message, frozen=True, kw_only=True):
    """Progress counter and phase, for the watchdog: once a second, from a thread of each rank.

    `for_s`: how long ago the counter moved; `expected_s`: what an operation like the one under way
    takes at most as a rule (None: nothing is known of it).
    """

    phase: WorkPhase
    counter: int
    rank: int = 0
    pid: int = 0
    for_s: float = 0.0
    expected_s: float | None = None


class DumpStacks(Message, frozen=True, kw_only=True):
    """Answered by `Stacks`."""

    ask: int


class Stacks(Message, frozen=True, kw_only=True):
    """Python stacks of all threads."""

    ask: int
    text: str
