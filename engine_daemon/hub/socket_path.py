"""Listening at a path of our own: bound, private, and bound again when the path was removed."""

import os
from pathlib import Path

import zmq


def bind_private(socket: zmq.Socket[bytes], path: Path) -> None:
    """Bind (0600) where nothing lies. Who is connected stays so: a socket that was bound there
    before keeps its deaf listener, because to unbind would end its connections."""
    socket.bind(f"ipc://{path}")
    os.chmod(path, 0o600)
