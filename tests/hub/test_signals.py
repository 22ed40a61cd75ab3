"""A signal may come at any moment of the loop: each one of them ends the daemon."""

import io
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from engine_daemon.config import DaemonOptions
from engine_daemon.hub.__main__ import _catch_signals
from engine_daemon.hub.front import Front
from engine_daemon.hub.home import Home
from engine_daemon.hub.hub import Hub
from engine_daemon.hub.sharing import resolve
from engine_daemon.paths import paths_for
from tests.daemons import directories

TURNS = 100


@contextmanager
def handlers_of_the_hub(hub: Any) -> Iterator[int]:
    """Its signal handlers in this process; gives the end that wakes its loop."""
    taken = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    before = {number: signal.getsignal(number) for number in taken}
    wake_fd = signal.set_wakeup_fd(-1)
    try:
        yield _catch_signals(hub)
    finally:
        os.close(signal.set_wakeup_fd(wake_fd))
        for number, handler in before.items():
            signal.signal(number, handler)


def moments(patch: pytest.MonkeyPatch, strike: Callable[[], None]) -> dict[str, Callable[[], None]]:
    """Where in a turn the signal comes, each a way to have it come there."""

    def as_a_command_is_looked_for(front: Front) -> bool:
        strike()
        return False

    def before(owner: type, name: str) -> None:
        plain = getattr(owner, name)

        def struck(*given: Any, **named: Any) -> Any:
            strike()
            return plain(*given, **named)

        patch.setattr(owner, name, struck)

    looked = property(as_a_command_is_looked_for)
    return {
        "stop": lambda: patch.setattr(Front, "stop_asked", looked),
        "receive": lambda: before(Front, "receive"),
        "tick": lambda: before(Hub, "_tick"),
        "flush": lambda: before(Front, "flush"),
        "push": lambda: before(Hub, "_push_state"),
        "failed": lambda: before(Hub, "_leave_if_failed"),
    }


@pytest.mark.parametrize("moment", ["stop", "receive", "tick", "flush", "push", "failed"])
@pytest.mark.fault("D5")
def test_a_signal_is_not_lost(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0

    def strike() -> None:
        nonlocal turns
        turns += 1
        assert turns < TURNS, "the loop went on"
        if turns == 1:
            signal.raise_signal(signal.SIGTERM)

    with directories():
        paths = paths_for("default")
        home = Home(paths)
        hub = Hub(paths, DaemonOptions(), home, resolve("", ""))
        with handlers_of_the_hub(hub) as wake_fd:
            moments(monkeypatch, strike)[moment]()
            assert hub.run(wake_fd) == 0
            os.close(wake_fd)
        assert turns >= 1
        hub.close()
        home.close()


def test_a_signal_amid_a_write_to_the_log_is_not_lost() -> None:
    """The handler runs inside the stream's own code then: a line of its own would be refused."""
    hub = SimpleNamespace(signal=None)

    class Struck(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any, /) -> int:
            if hub.signal is None:
                signal.raise_signal(signal.SIGTERM)
            written.append(bytes(data))
            return len(written[-1])

    written: list[bytes] = []
    stream = io.TextIOWrapper(io.BufferedWriter(Struck()), line_buffering=True)
    log = logging.getLogger("engine_daemon.hub")
    handler = logging.StreamHandler(stream)
    log.addHandler(handler)
    try:
        with handlers_of_the_hub(hub) as wake_fd:
            log.warning("attached")
            os.close(wake_fd)
    finally:
        log.removeHandler(handler)
    assert hub.signal == signal.SIGTERM
    assert b"".join(written) == b"attached\n"
