"""The socket between the hub and its children: frames in, typed messages out, and back.

Knows addresses, not who is behind them; what a message means is the business of `workers`.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

import zmq

from engine_daemon.hub.socket_path import bind_private, engine_socket
from engine_daemon.protocol import worker as wire
from engine_daemon.protocol.codec import WireError, decode_body, open_envelope, seal
from engine_daemon.protocol.commands import Message

_log = logging.getLogger(__name__)


class InnerSocket:
    """Listens at `path` from the start. `socket` is there to be polled, by nobody to be read."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], path: Path) -> None:
        self.path = path
        self.socket = engine_socket(context)
        self.bind()

    def bind(self) -> None:
        """Listen at the path; again when it was cleaned away."""
        bind_private(self.socket, self.path)

    def received(self) -> Iterator[tuple[bytes, Message]]:
        """All that lies there: the sender's address and what it says. What cannot be read is
        logged and left out."""
        while True:
            try:
                route, *frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                yield route, _opened(frames)
            except WireError as error:
                _log.error("from a child: %s", error.message)

    def send(self, route: bytes, message: Message) -> bool:
        """False when nobody is at that address any more."""
        try:
            self.socket.send_multipart([route, *seal(message)], zmq.NOBLOCK)
        except zmq.ZMQError as error:  # it just died; its end is noticed soon
            _log.warning("%s to a child: %s", type(message).__name__, error)
            return False
        return True

    def close(self) -> None:
        """What is not sent yet is dropped."""
        self.socket.close(linger=0)


def _opened(frames: list[bytes]) -> Message:
    envelope, body = open_envelope(frames)
    kind = wire.FROM_CHILD.get(envelope.t)
    if kind is None:
        raise WireError("bad_frames", f"unknown message {envelope.t!r}")
    return decode_body(body, kind)
