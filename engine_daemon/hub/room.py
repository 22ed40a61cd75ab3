"""How many may connect: what the limit of open files leaves to viewers.

libzmq aborts the process when `accept` finds no descriptor free (`ipc_listener.cpp`, up to 4.3.5 at
least). Viewers are refused long before, and connections of which nothing is known yet are cut off.
Whoever connects faster than the hub's loop turns can still use up a low limit.
"""

import logging
import resource
import socket
import time
from typing import Final

import zmq
import zmq.utils.monitor

from engine_daemon.errors import Exit, InspectError

OWN: Final = 32
"""Files of a daemon with nobody there and no session, and a few to spare."""
LEAST: Final = OWN + 16
"""With fewer open files there is room for no more than one or two viewers, or not for itself."""
_MANY: Final = 1 << 30
WARN_S: Final = 60.0
"""Connections that are cut off are said to be so often at most."""

_log = logging.getLogger(__name__)


def open_files() -> int:
    """Files that this process may have open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MANY if limit == resource.RLIM_INFINITY else limit


def check_limit(limit: int) -> None:
    """InspectError where so few open files are no life for a daemon."""
    if limit < LEAST:
        raise InspectError(
            f"{limit} files may be open at once here, a daemon needs {LEAST} at least",
            "Raise the limit (`ulimit -Hn` shows it), then start it again",
            exit_code=Exit.DAEMON,
            code="few_files",
        )


class Room:
    """Of one listening socket. `limit`: files that this process may have open.

    `most`: viewers that may be attached, half of what the daemon does not need itself; the other
    half is for logs of sessions and whatever knocks. `monitor` becomes readable when somebody
    connected.
    """

    def __init__(self, listener: zmq.Socket[bytes], limit: int | None = None) -> None:
        self._limit = open_files() if limit is None else limit
        self._listener = listener
        self._said = -WARN_S
        self.most = max(1, (self._limit - OWN) // 2)
        self.monitor = listener.get_monitor_socket(zmq.EVENT_ACCEPTED)

    def look(self) -> None:
        """Cut off who took one of the last descriptors: the system gives the lowest that is free,
        so that their number tells how many there are."""
        while True:
            try:
                event = zmq.utils.monitor.recv_monitor_message(self.monitor, zmq.NOBLOCK)
            except zmq.Again:
                return
            if event["value"] >= self._limit - self._limit // 8:
                _cut(event["value"])
                self._say()

    def _say(self) -> None:
        now = time.monotonic()
        if now - self._said >= WARN_S:
            self._said = now
            _log.warning("connections are cut off: all but %d files are open", self._limit // 8)

    def close(self) -> None:
        """Before the listener is closed."""
        self._listener.disable_monitor()
        self.monitor.close(linger=0)


def _cut(descriptor: int) -> None:
    """End a connection that libzmq owns, and closes then. It may have done so already."""
    try:
        connection = socket.socket(fileno=descriptor)
    except OSError:
        return
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
    finally:
        connection.detach()
