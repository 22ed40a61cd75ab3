"""Samples of what several viewers need of each other: see `samples`."""

from typing import Final

import msgspec

from engine_daemon.protocol import commands as c
from engine_daemon.protocol import events as e
from engine_daemon.protocol import state as s
from engine_daemon.protocol import values as v
from engine_daemon.protocol import viewing as g

_CMD: Final = bytes(range(16))
_VIEWER: Final = bytes(range(16, 32))

VIEWING_SAMPLES: Final[dict[str, msgspec.Struct]] = {
    "Lease": g.Lease(cmd=_CMD, session="7ZK3M9QP", do="renew", lease_no=3),
    "Lost": g.Lost(session="7ZK3M9QP", lease=3, by="bob@box"),
    "Reply-lease": c.Reply(cmd=_CMD, status="accepted", session="7ZK3M9QP", lease_no=4),
    "ViewerInfo-lease": s.ViewerInfo(
        viewer=_VIEWER,
        who="bob@box",
        client="tui 0.1.0",
        role="observer",
        sessions=["7ZK3M9QP"],
        holds=["7ZK3M9QP"],
        uid=1001,
    ),
    "Open-private": c.Open(prompt=v.PromptSpec(text=b"Hello"), private=True),
    "SessionSet-private": e.SessionSet(
        t_ns=1,
        wall_ns=1,
        candidates=20,
        cache_mode="kv",
        limit_tokens=None,
        max_steps=None,
        private=True,
    ),
    "Snapshot": g.Snapshot(session="7ZK3M9QP", seq=900, part=1, parts=3, columns=b"abc"),
    "Ack-snapshot": c.Ack(session="7ZK3M9QP", next=0, parts=2),
    "Note": c.Note(text="Grüße", step=3, branch=1),
    "Noted": e.Noted(
        t_ns=123_456_789,
        wall_ns=1_767_225_600_123_456_789,
        branch=1,
        step=3,
        cause=_CMD,
        who="bob@box",
        text="Grüße",
    ),
}
