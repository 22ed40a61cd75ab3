"""Samples of what is done to recordings: see `samples`."""

from typing import Final

import msgspec

from engine_daemon.protocol import commands as c
from engine_daemon.protocol import events as e

_CMD: Final = bytes(range(16))

FILING: Final[dict[str, msgspec.Struct]] = {
    "Reopen": c.Reopen(session="7ZK3M9QP"),
    "Release": c.Release(session="7ZK3M9QP"),
    "Release-2": c.Release(session="7ZK3M9QP", removed=True),
    "Rename": c.Rename(title="the one with the scheduler"),
    "Renamed": e.Renamed(
        t_ns=123_456_789,
        wall_ns=1_767_225_600_123_456_789,
        branch=1,
        step=9,
        cause=_CMD,
        title="the one with the scheduler",
    ),
    "Opened-2": e.Opened(
        t_ns=1,
        wall_ns=1_767_225_600_123_456_789,
        format=1,
        session="8ZK3M9QP",
        created_ns=1_767_225_600_000_000_000,
        host="box",
        name="default",
        tool="llm-inspect 0.1.0",
        title="",
        origin="7ZK3M9QP",
    ),
}
