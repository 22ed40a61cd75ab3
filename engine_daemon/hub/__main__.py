"""Entry of the hub process: lock, sockets, connection file, signals, and the loop.

Started by `engine_daemon.launch`; knows nothing of what the hub does with its sockets.
"""

import argparse
import fcntl
import json
import logging
import os
import resource
import signal
import stat
import sys
import time
from pathlib import Path

from engine_daemon import __version__
from engine_daemon.config import DaemonOptions
from engine_daemon.errors import Exit, InspectError
from engine_daemon.hub.hub import Hub
from engine_daemon.paths import Paths, make_runtime
from engine_daemon.protocol.codec import MAJOR

LOCK_PATIENCE_S = 0.2
"""A viewer that asks whether a daemon runs holds the lock for a moment."""

_log = logging.getLogger("engine_daemon.hub")


def main() -> int:
    """Run the daemon until it is told to leave; its exit code."""
    parser = argparse.ArgumentParser(prog="engine_daemon.hub")
    for name in ("name", "runtime", "state", "cache", "config"):
        parser.add_argument(f"--{name}", required=True)
    chosen = parser.parse_args()
    paths = Paths(
        name=chosen.name,
        runtime=Path(chosen.runtime),
        state=Path(chosen.state),
        cache=Path(chosen.cache),
        config=Path(chosen.config),
    )
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        make_runtime(paths)
        lock = take_lock(paths)
        options = DaemonOptions.read(paths.options)
        for socket in (paths.viewer_socket, paths.engine_socket):
            clear_socket(socket)
    except InspectError as error:
        _log.error("%s", error.lines())
        return error.exit_code
    _raise_file_limit()
    wake_fd = _catch_signals(hub := Hub(paths, options))
    try:
        hub.start()
        _write_connection(paths, hub.epoch)
        _log.info(
            "llm-inspect %s, pid %d, model %s", __version__, os.getpid(), options.engine.model
        )
        return hub.run(wake_fd)
    finally:
        paths.connection.unlink(missing_ok=True)
        hub.close()
        os.close(lock)


def take_lock(paths: Paths) -> int:
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


def clear_socket(path: Path) -> None:
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


def _write_connection(paths: Paths, epoch: bytes) -> None:
    beside = paths.connection.with_name("conn.json.new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump(
            {
                "viewers": f"ipc://{paths.viewer_socket}",
                "epoch": epoch.hex(),
                "protocol": [MAJOR, MAJOR],
                "version": __version__,
                "name": paths.name,
                "pid": os.getpid(),
                "started": time.time(),
            },
            file,
        )
    os.replace(beside, paths.connection)


def _raise_file_limit() -> None:
    """libzmq aborts when accept runs out of file descriptors: take what we may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _catch_signals(hub: Hub) -> int:
    """Signals wake the loop through a pipe; SIGTERM and SIGINT end it after its turn."""
    read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def leave(number: int, _frame: object) -> None:
        _log.info("%s", signal.Signals(number).name)
        hub.leaving = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return read_end


if __name__ == "__main__":
    sys.exit(main())
