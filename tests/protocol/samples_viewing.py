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
    "Lease-2": g.Lease(cmd=_CMD, session="7ZK3M9QP", do="renew", lease_no=3, t_ns=123_456_789),
    "Cmd-2": c.Cmd(
        cmd=_CMD,
        epoch=bytes(range(8)),
        do=c.RunTo(step=12),
        session="7ZK3M9QP",
        lease_no=2,
        at=c.At(branch=1, step=11),
        t_ns=123_456_789,
    ),
    "Pong-2": c.Pong(head=12, durable=11, t_ns=123_456_789),
    "Welcome-2": c.Welcome(
        ver="1.0",
        tool="0.1.0",
        caps=["force"],
        ep=bytes(range(8)),
        viewer=_VIEWER,
        role="controller",
        limits=c.Limits(body_bytes=65_536, text_bytes=8_388_608),
        state=s.State(
            engine=s.EngineState(word="starting"), sessions=[], viewers=[], idle_exit_s=7200.0
        ),
        t_ns=123_456_789,
    ),
    "Lost": g.Lost(session="7ZK3M9QP", lease=3, by="bob@box"),
    "Removed": g.Removed(session="7ZK3M9QP", by="bob@box"),
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
