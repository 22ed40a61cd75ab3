"""With whom a daemon is shared: accounts of this machine, and what each may do.

Whoever is not named is kept out: by the socket's filter, and once more by each message's own peer.
Knows accounts and frames; the socket is `front`'s.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import zmq

from engine_daemon.accounts import uids_of
from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.viewing import Role

PROBE_MS: Final = 2000
_PEER: Final = "Peer-Address"
"""What libzmq tells of an ipc peer with every message: `host:uid:gid:pid`."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Uids that may watch, and those that may command. Empty: only the daemon's own user."""

    watch: frozenset[int] = frozenset()
    control: frozenset[int] = frozenset()
    own: int = field(default_factory=os.getuid)

    @property
    def on(self) -> bool:
        """Anybody else may come in."""
        return bool(self.watch or self.control)

    @property
    def uids(self) -> list[int]:
        """Everybody who may connect."""
        return sorted({self.own} | self.watch | self.control)

    def role(self, uid: int, want: str) -> Role:
        """What a process of this account is here; never more than it asks for."""
        commands = uid == self.own or uid in self.control
        return "controller" if commands and want == "control" else "observer"


def resolve(share: str, share_control: str) -> Sharing:
    """`alice,@lab` as uids. InspectError for a name nobody has."""
    own = os.getuid()
    watch, control = uids_of("--share", share), uids_of("--share-control", share_control)
    return Sharing(watch=frozenset(watch - control - {own}), control=frozenset(control - {own}))


def peer_uid(frame: zmq.Frame) -> int | None:
    """The account of the process that sent a message; None when the system does not tell."""
    try:
        return int(str(frame.get(_PEER)).rsplit(":", 3)[1])
    except (zmq.ZMQError, KeyError, ValueError, IndexError):
        return None


def check_own_peer(
    context: zmq.Context[zmq.Socket[bytes]], router: zmq.Socket[bytes], path: Path
) -> None:
    """InspectError unless this process sees its own uid come back over its own socket: without
    that nobody could be told from anybody."""
    name = os.urandom(8)
    probe = context.socket(zmq.DEALER)
    try:
        probe.setsockopt(zmq.ROUTING_ID, b"probe" + name)
        probe.setsockopt(zmq.LINGER, 0)
        probe.connect(f"ipc://{path}")
        probe.send(b"")
        while router.poll(PROBE_MS):
            route, *frames = router.recv_multipart(copy=False)
            if route.bytes == b"probe" + name:
                if peer_uid(frames[-1]) == os.getuid():
                    return
                break
    finally:
        probe.close()
    raise InspectError(
        "this system does not tell who connects: the daemon cannot be shared",
        "Start it without --share",
        exit_code=Exit.DAEMON,
    )
