"""The inner socket alone: what children send, what cannot be read, and who is gone."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from engine_daemon.hub.inner_socket import InnerSocket
from engine_daemon.protocol import worker as wire
from engine_daemon.protocol.codec import decode_body, open_envelope, seal
from engine_daemon.protocol.commands import Message
from tests.daemons import wait_for

READY = wire.ChildReady(role="worker", rank=0, pid=7, version="1")
PATIENCE_MS = 60_000


Sockets = zmq.Context[zmq.Socket[bytes]]


class Place:
    """A path for the socket, and children that connect to it."""

    def __init__(self, context: Sockets, path: Path) -> None:
        self.path = path
        self._context = context
        self.inner = InnerSocket(context, path)
        self._children: list[zmq.Socket[bytes]] = []

    def child(self) -> zmq.Socket[bytes]:
        child = self._context.socket(zmq.DEALER)
        child.connect(f"ipc://{self.path}")
        self._children.append(child)
        return child

    def close(self) -> None:
        self.inner.close()
        for child in self._children:
            child.close(linger=0)


@pytest.fixture
def place() -> Iterator[Place]:
    context: Sockets = zmq.Context()
    with tempfile.TemporaryDirectory(prefix="li", dir="/tmp") as folder:
        made = Place(context, Path(folder) / "e.sock")
        yield made
        made.close()
        context.term()


def heard(inner: InnerSocket, count: int) -> list[tuple[bytes, Message]]:
    messages: list[tuple[bytes, Message]] = []
    while len(messages) < count:
        assert inner.socket.poll(PATIENCE_MS)
        messages += inner.received()
    return messages


def test_what_a_child_says_comes_with_its_address_and_garbage_is_left_out(place: Place) -> None:
    assert list(place.inner.received()) == []
    child = place.child()
    child.send_multipart(seal(READY))
    child.send_multipart([b"none of ours"])
    child.send_multipart(seal(wire.Load(options=wire.EngineOptions())))  # the hub's own word
    child.send_multipart(seal(READY))
    (route, first), (again, second) = heard(place.inner, 2)
    assert (first, second, again) == (READY, READY, route)

    assert place.inner.send(route, wire.SumWeights())
    assert child.poll(PATIENCE_MS)
    envelope, body = open_envelope(child.recv_multipart())
    assert decode_body(body, wire.TO_CHILD[envelope.t]) == wire.SumWeights()


def test_who_is_gone_is_not_written_to(place: Place) -> None:
    assert not place.inner.send(b"nobody", wire.SumWeights())
    child = place.child()
    child.send_multipart(seal(READY))
    ((route, _),) = heard(place.inner, 1)
    child.close(linger=0)
    wait_for(lambda: not place.inner.send(route, wire.SumWeights()))


def test_a_socket_that_was_cleaned_away_is_bound_again_and_keeps_who_is_there(
    place: Place,
) -> None:
    old = place.child()
    old.send_multipart(seal(READY))
    heard(place.inner, 1)
    place.path.unlink()
    place.inner.bind()
    assert place.path.stat().st_mode & 0o777 == 0o600
    new = place.child()
    for child in (old, new):
        child.send_multipart(seal(READY))
    assert len({route for route, _ in heard(place.inner, 2)}) == 2
