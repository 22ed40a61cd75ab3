"""How many may connect: a daemon that few open files are left to refuses, and lives."""

import os
import resource
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest
import zmq

from engine_daemon.client import DaemonClient
from engine_daemon.errors import Exit, InspectError
from engine_daemon.hub.room import LEAST, OWN, Room, open_files
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.state import State
from tests.daemons import Daemon, directories, wait_for
from tests.end_to_end.command import COMMAND, SCRIPTED
from tests.hub.test_wire import RawViewer

LIMIT = 64
MOST = (LIMIT - OWN) // 2
STORM = 120


@contextmanager
def daemon_with_few_files() -> Iterator[Daemon]:
    """Its limit of open files is low, and it cannot raise it."""
    with directories():
        start = ["sh", "-c", f'ulimit -n {LIMIT} && exec "$@"', "sh", str(COMMAND)]
        subprocess.run([*start, "daemon", "start", *SCRIPTED], check=True, capture_output=True)
        daemon = Daemon()
        try:
            yield daemon
        finally:
            daemon.stop()


def hello(daemon: Daemon, viewers: ExitStack) -> tuple[RawViewer, cmd.Message]:
    """A viewer that is closed with the others, and what it is answered."""
    viewer = viewers.enter_context(closing(RawViewer(daemon)))
    viewer.send(cmd.Hello(min=1, max=1, caps=[], client="raw", who="me"))
    received = viewer.receive(60.0)
    assert received is not None
    return viewer, received[1]


def until_seen(viewer: RawViewer, count: int, known: State | None = None) -> None:
    """Until so many are attached: the hub notices who has gone when it writes to it."""
    state = known
    while state is None or len(state.viewers) != count:
        message = viewer.until("state")
        assert isinstance(message, cmd.StateMessage)
        state = message.state


@pytest.mark.pitfall("P11")
async def test_the_viewer_that_is_too_many_is_told_and_comes_in_when_one_has_left() -> None:
    with daemon_with_few_files() as daemon, ExitStack() as viewers:
        first, answer = hello(daemon, viewers)
        assert isinstance(answer, cmd.Welcome)
        until_seen(first, 1, answer.state)  # whoever started it has gone
        here = [hello(daemon, viewers) for _ in range(MOST - 1)]
        assert all(isinstance(answer, cmd.Welcome) for _, answer in here)
        log = daemon.paths.log.read_text()
        assert log.count(f"viewers are attached, of {MOST} at most (ulimit -Hn)") == 1
        narrow = -(-4 * MOST // 5)
        assert f"{narrow} viewers are attached, of {MOST}" in log

        with pytest.raises(InspectError) as caught:
            async with DaemonClient(daemon.paths):
                pass
        assert (caught.value.code, caught.value.exit_code) == ("full", Exit.DAEMON)
        assert caught.value.message == f"{MOST} viewers are attached, which is the most"
        assert "ulimit -Hn" in (caught.value.hint or "")
        # Whoever is in stays in, and may say hello again.
        first.send(cmd.Hello(min=1, max=1, caps=[], client="raw", who="me"))
        assert isinstance(first.until("welcome"), cmd.Welcome)

        here[-1][0].close()
        until_seen(first, MOST - 1)
        _, answer = hello(daemon, viewers)
        assert isinstance(answer, cmd.Welcome)


@pytest.mark.pitfall("P11")
def test_a_storm_of_connections_is_cut_off_and_the_daemon_lives() -> None:
    """libzmq would abort it at the first `accept` without a free descriptor."""
    with daemon_with_few_files() as daemon, ExitStack() as viewers:
        pid = daemon.pid
        viewer, answer = hello(daemon, viewers)
        assert isinstance(answer, cmd.Welcome)
        with ExitStack() as storm:
            for _ in range(STORM):
                one = storm.enter_context(socket.socket(socket.AF_UNIX))
                one.connect(str(daemon.paths.viewer_socket))
                viewer.send(cmd.Ping())  # the loop has turned: no faster than it can look
                viewer.until("pong")
            said = "connections are cut off: all but 8 files are open"
            assert said in daemon.paths.log.read_text()
        wait_for(lambda: len(os.listdir(f"/proc/{pid}/fd")) < OWN)
        _, answer = hello(daemon, viewers)
        assert isinstance(answer, cmd.Welcome)
        assert daemon.pid == pid


@pytest.mark.parametrize(("limit", "most"), [(1024, 496), (64, 16), (16, 1)])
def test_half_of_the_files_is_for_viewers(limit: int, most: int) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    listener = context.socket(zmq.ROUTER)
    room = Room(listener, limit)
    assert room.most == most
    room.close()
    listener.close()
    context.term()


@pytest.mark.parametrize("limit", [16, 24, LEAST - 1])
def test_a_daemon_that_too_few_open_files_are_left_to_says_so(limit: int) -> None:
    with directories():
        start = ["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", str(COMMAND)]
        ran = subprocess.run([*start, "daemon", "start", *SCRIPTED], capture_output=True, text=True)
        assert ran.returncode == Exit.DAEMON
        assert f"{limit} files may be open at once here, a daemon needs {LEAST}" in ran.stderr
        assert "ulimit -Hn" in ran.stderr


def test_no_limit_is_no_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _: (unlimited, unlimited))
    assert open_files() > 1_000_000
