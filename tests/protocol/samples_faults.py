"""Samples of what is said when the engine is stuck or lost: see `samples`."""

from typing import Final

import msgspec

from engine_daemon.protocol import commands as c
from engine_daemon.protocol import liveness as n
from engine_daemon.protocol import state as s

_STUCK: Final = s.Stuck(ranks=[1], why="busy", phase="decode", for_s=31)

FAULT_SAMPLES: Final[dict[str, msgspec.Struct]] = {
    "Alive-2": n.Alive(phase="measure", counter=7, rank=1, pid=4712, for_s=31.5, expected_s=0.25),
    "Stuck": _STUCK,
    "EngineDetails-2": s.EngineDetails(stuck=_STUCK, again=True),
    "KillEngine": c.KillEngine(),
    "SessionInfo-3": s.SessionInfo(
        session="7ZK3M9QP",
        title="",
        status="running",
        place=s.Place(),
        resident=True,
        head=9,
        created_ns=1,
        pausing=True,
    ),
    "SessionInfo-4": s.SessionInfo(
        session="7ZK3M9QP",
        title="",
        status="paused",
        place=s.Place(kind="pending", step=4),
        resident=False,
        head=12,
        created_ns=1,
        stop="disk_full",
    ),
}
