"""Sockets at paths of our own: their options, bound private, bound again when the path is gone."""

import os
from collections.abc import Sequence
from pathlib import Path

import zmq

from engine_daemon.protocol import codec


def bind_private(socket: zmq.Socket[bytes], path: Path) -> None:
    """Bind (0600) where nothing lies. Who is connected stays so: a socket that was bound there
    before keeps its deaf listener, because to unbind would end its connections."""
    socket.bind(f"ipc://{path}")
    os.chmod(path, 0o600)


def viewer_socket(
    context: zmq.Context[zmq.Socket[bytes]], uids: Sequence[int]
) -> zmq.Socket[bytes]:
    """The ROUTER for viewers, not bound yet: bounded queues, processes of `uids` only."""
    socket = context.socket(zmq.ROUTER)
    for option, value in (
        (zmq.ROUTER_MANDATORY, 1),
        (zmq.ROUTER_HANDOVER, 0),
        (zmq.SNDHWM, 64),
        (zmq.RCVHWM, 64),
        (zmq.MAXMSGSIZE, codec.TEXT_LIMIT + 64 * 1024),
        (zmq.HANDSHAKE_IVL, 2000),
        (zmq.HEARTBEAT_IVL, 2000),
        (zmq.HEARTBEAT_TIMEOUT, 6000),
        (zmq.LINGER, 0),
        *((zmq.IPC_FILTER_UID, uid) for uid in uids),
    ):
        socket.setsockopt(option, value)
    return socket


def engine_socket(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    """A ROUTER for the hub's children."""
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.HANDSHAKE_IVL, 2000)
    socket.setsockopt(zmq.IPC_FILTER_UID, os.getuid())
    return socket
