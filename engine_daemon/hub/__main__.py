"""Entry of the hub process: logging, signals, and the loop.

Started by `engine_daemon.launch`; knows nothing of what the hub does with its sockets.
"""

import argparse
import logging
import os
import resource
import signal
import sys
from pathlib import Path

from engine_daemon import __version__
from engine_daemon.config import DaemonOptions
from engine_daemon.errors import InspectError
from engine_daemon.hub.home import Home
from engine_daemon.hub.hub import Hub
from engine_daemon.hub.room import check_limit, open_files
from engine_daemon.hub.sharing import resolve
from engine_daemon.paths import Paths, unusable

_log = logging.getLogger("engine_daemon.hub")


def main() -> int:
    """Run the daemon until it is told to leave; its exit code."""
    os.umask(0o077)  # whoever may pass through a shared daemon's folder finds nothing to read
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
        options = DaemonOptions.read(paths.options)
        sharing = resolve(options.share, options.share_control)
        _raise_file_limit()
        check_limit(open_files())
        home = Home(paths, shared=sharing.on)
    except (InspectError, OSError) as error:
        return _told(error)
    try:
        hub = Hub(paths, options, home, sharing)
    except InspectError as error:
        home.close()
        return _told(error)
    wake_fd = _catch_signals(hub)
    try:
        try:
            hub.start()
            home.announce(hub.epoch)
        except OSError as error:
            return _told(error)
        _log.info(
            "llm-inspect %s, pid %d, model %s", __version__, os.getpid(), options.engine.model
        )
        return hub.run(wake_fd)
    finally:
        if hub.signal is not None:
            _log.info("%s", hub.signal.name)
        home.withdraw()
        hub.close()
        home.close()


def _told(error: InspectError | OSError) -> int:
    """Say why it cannot start where whoever started it looks; the exit code."""
    known = unusable(error) if isinstance(error, OSError) else error
    _log.error("%s", known.lines())
    return known.exit_code


def _raise_file_limit() -> None:
    """libzmq aborts when accept runs out of file descriptors: take what we may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _catch_signals(hub: Hub) -> int:
    """Signals wake the loop through a pipe; SIGTERM and SIGINT end it after its turn.

    The handler writes nothing: it may run inside a write to the very file that it would write to.
    """
    read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def leave(number: int, _frame: object) -> None:
        hub.signal = signal.Signals(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return read_end


if __name__ == "__main__":
    sys.exit(main())
