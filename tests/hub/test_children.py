"""A child process: whoever started it may go, and it ends with the death pipe."""

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from engine_daemon.hub.children import Child
from engine_daemon.hub.inner_socket import InnerSocket
from engine_daemon.protocol.worker import ChildReady
from tests.daemons import PATIENCE_S, wait_for


@contextmanager
def inner_socket() -> Iterator[InnerSocket]:
    """What a child connects to."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with tempfile.TemporaryDirectory(prefix="li", dir="/tmp") as folder:
        inner = InnerSocket(context, Path(folder) / "e.sock")
        try:
            yield inner
        finally:
            inner.close()
            context.term()


def started_in_a_thread(path: Path) -> Child:
    """The thread has ended, for the system too, when this returns."""
    found: list[Child] = []
    numbers: list[int] = []

    def start() -> None:
        numbers.append(threading.get_native_id())
        found.append(Child("engine_daemon.tokens", path))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    wait_for(lambda: not os.path.exists(f"/proc/self/task/{numbers[0]}"))
    return found[0]


def said(inner: InnerSocket, child: Child) -> ChildReady:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert child.ending() is None
        if inner.socket.poll(100):
            (message,) = [message for _, message in inner.received()]
            assert isinstance(message, ChildReady)
            return message
    raise AssertionError("the child said nothing")


@pytest.mark.pitfall("P30")
def test_a_child_outlives_the_thread_that_started_it_and_ends_with_the_pipe() -> None:
    """PR_SET_PDEATHSIG would end it with the thread (prctl(2)): the pipe goes by the process."""
    with inner_socket() as inner:
        child = started_in_a_thread(inner.path)
        try:
            assert said(inner, child).pid == child.pid
            assert child.ending() is None
            child.close()
            wait_for(lambda: child.ending() is not None)
        finally:
            child.kill()
            wait_for(lambda: child.ending() is not None)
            child.close()
