"""The daemon's place in the runtime directory: lock, sockets' paths, connection file.

Holds the lock for life, and notices when somebody cleans the directory away under a living
daemon. Binds nothing itself.
"""

import contextlib
import fcntl
import json
import logging
import os
import stat
import time
from pathlib import Path
from typing import Final

from engine_daemon import __version__
from engine_daemon.errors import Exit, InspectError
from engine_daemon.paths import (
    Paths,
    is_let_through,
    let_through,
    make_private,
    make_runtime,
    unusable,
)
from engine_daemon.protocol.codec import MAJOR

LOCK_PATIENCE_S: Final = 0.2
"""A viewer that asks whether a daemon runs holds the lock for a moment."""
CHECK_S: Final = 5.0
TOUCH_S: Final = 3600.0
"""Aging of /tmp takes what nobody touched for long."""

_log = logging.getLogger(__name__)


class Home:
    """The runtime directory of a living daemon. Raises InspectError when it cannot be ours.

    `shared`: others may go through it to the viewers' socket; they can list and read nothing.
    """

    def __init__(self, paths: Paths, *, shared: bool = False) -> None:
        self._paths = paths
        self._shared = shared
        self._epoch = b""
        self._started = time.time()
        self._checked = self._touched = time.monotonic()
        self._lock = self._move_in()

    def _move_in(self) -> int:
        make_runtime(self._paths)
        if self._shared:
            let_through(self._paths)
        lock = _take_lock(self._paths)
        try:
            os.truncate(lock, 0)
            os.pwrite(lock, b"%d\n" % os.getpid(), 0)
            for socket in self._sockets():
                _clear_socket(socket)
        except BaseException:
            os.close(lock)
            raise
        return lock

    def _sockets(self) -> tuple[Path, Path]:
        return self._paths.viewer_socket, self._paths.engine_socket

    def announce(self, epoch: bytes) -> None:
        """Every socket is bound: tell viewers where, atomically, for nobody else to read."""
        self._epoch = epoch
        beside = self._paths.connection.with_name("conn.json.new")
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(
                {
                    "viewers": f"ipc://{self._paths.viewer_socket}",
                    "epoch": epoch.hex(),
                    "protocol": [MAJOR, MAJOR],
                    "version": __version__,
                    "name": self._paths.name,
                    "pid": os.getpid(),
                    "started": self._started,
                },
                file,
            )
        os.replace(beside, self._paths.connection)

    def vanished(self, now: float) -> bool:
        """Every few seconds: is our lock, or a socket, no longer where it was?"""
        if now - self._checked < CHECK_S:
            return False
        self._checked = now
        if self._shared:
            self._let_through_again()
        if now - self._touched > TOUCH_S:
            self._touched = now
            for path in (self._paths.runtime, self._paths.lock, self._paths.connection):
                if path.exists():
                    os.utime(path)
        return not (_same_file(self._lock, self._paths.lock) and all(map(_is_there, self._all())))

    def _let_through_again(self) -> None:
        """Another daemon of ours was started, and closed the folder above both. Where somebody else
        closed one, others stay out and everybody who is attached stays."""
        with contextlib.suppress(OSError, InspectError):
            if not is_let_through(self._paths):
                let_through(self._paths)

    def _all(self) -> tuple[Path, ...]:
        return (*self._sockets(), self._paths.connection)

    def come_back(self) -> bool:
        """Make the directory again and take a new lock; False when another has it by now."""
        try:
            if _same_file(self._lock, self._paths.lock):
                for socket in self._sockets():
                    _clear_socket(socket)
            else:
                lost, self._lock = self._lock, self._move_in()
                os.close(lost)
        except (InspectError, OSError) as error:
            known = unusable(error) if isinstance(error, OSError) else error
            _log.error("the runtime directory is lost: %s", known.message)
            return False
        _log.warning("the runtime directory was cleaned away; it is back")
        return True

    def announce_again(self) -> None:
        """The sockets are bound anew."""
        try:
            self.announce(self._epoch)
        except OSError as error:  # whoever is attached stays, others are told what is in the way
            _log.error("%s", unusable(error).message)

    def withdraw(self) -> None:
        """About to leave: nobody new is to come."""
        if _same_file(self._lock, self._paths.lock):
            _unlink(self._paths.connection)

    def close(self) -> None:
        """Leave nothing behind but the lock file."""
        if _same_file(self._lock, self._paths.lock):
            for path in (*self._all(), self._paths.pieces):
                _unlink(path)
            if self._shared:
                make_private(self._paths.runtime)
        os.close(self._lock)


def _unlink(path: Path) -> None:
    """Remove it. A directory that somebody put in its place stays, and is in nobody's way."""
    with contextlib.suppress(OSError):
        path.unlink()


def _same_file(fd: int, path: Path) -> bool:
    try:
        there = os.lstat(path)
    except OSError:
        return False
    ours = os.fstat(fd)
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)


def _take_lock(paths: Paths) -> int:
    """The lock's file descriptor, held for life. Raises InspectError when a daemon runs."""
    fd = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() > deadline:
                break
        time.sleep(0.01)
    os.close(fd)
    raise InspectError(
        f"a daemon named {paths.name} is running",
        "llm-inspect daemon status",
        exit_code=Exit.DAEMON,
    )


def _clear_socket(path: Path) -> None:
    """Remove a socket that a killed daemon left. An ipc bind would delete whatever lies there."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(info.st_mode) or info.st_uid != os.getuid():
        raise InspectError(
            f"{path} is no socket of ours", "Move it away, then start again", exit_code=Exit.DAEMON
        )
    path.unlink()
