"""Start a daemon that outlives its terminal, and stop one.

Knows processes and the daemon's state; asks nobody anything and prints nothing.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, Literal

from engine_daemon.client import DaemonClient, is_running, read_connection
from engine_daemon.config import DaemonOptions
from engine_daemon.errors import Exit, InspectError
from engine_daemon.paths import Paths, make_runtime
from engine_daemon.protocol.codec import WireError
from engine_daemon.protocol.commands import StateMessage, StopDaemon
from engine_daemon.protocol.state import State

HUB_UP_S: Final = 10.0
STOP_S: Final = 2.0
_POLL_S: Final = 0.01

OnState = Callable[[State], None]


def start_daemon(
    paths: Paths,
    options: DaemonOptions,
    on_state: OnState | None = None,
    wait: Literal["hub", "ready"] = "ready",
) -> None:
    """Start it detached: own session, stdio to its log, cwd `/`. Returns when it answers (`hub`)
    or the model is loaded (`ready`).

    Raises InspectError: exit 4 when the hub cannot start, 3 when the model cannot be loaded.
    """
    make_runtime(paths)
    options.save(paths.options)
    paths.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with paths.log.open("ab") as log:
        os.chmod(paths.log, 0o600)
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "engine_daemon.hub",
                *("--name", paths.name),
                *("--runtime", str(paths.runtime.absolute())),
                *("--state", str(paths.state.absolute())),
                *("--cache", str(paths.cache.absolute())),
                *("--config", str(paths.config.absolute())),
            ],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _wait_for_hub(paths, process)
    # Whoever started it is its parent until it ends itself: leave no zombie when it does.
    threading.Thread(target=process.wait, daemon=True).start()
    if wait == "ready":
        asyncio.run(wait_ready(paths, on_state))


def _wait_for_hub(paths: Paths, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + HUB_UP_S
    while time.monotonic() < deadline:
        code = process.poll()
        if code is not None:
            raise InspectError(
                f"the daemon ended at once (exit {code})",
                f"See {paths.log}",
                exit_code=Exit.DAEMON,
                code="no_daemon",
            )
        try:
            if read_connection(paths)["pid"] == process.pid:
                return
        except InspectError:
            pass
        time.sleep(_POLL_S)
    raise InspectError(
        f"the daemon did not come up within {HUB_UP_S:.0f} s",
        f"See {paths.log}",
        exit_code=Exit.DAEMON,
        code="no_daemon",
    )


async def wait_ready(paths: Paths, on_state: OnState | None = None) -> None:
    """Wait until the model is loaded, telling every state on the way.

    Raises InspectError, exit 3, when it cannot be loaded.
    """
    async with DaemonClient(paths, client="start", reconnect=False) as client:
        if _ready(client.state, on_state):
            return
        try:
            async for updates in client.updates():
                for update in updates:
                    if isinstance(update, StateMessage) and _ready(update.state, on_state):
                        return
        except WireError as error:
            raise InspectError(error.message, exit_code=Exit.DAEMON) from None


def _ready(state: State, on_state: OnState | None) -> bool:
    if on_state is not None:
        on_state(state)
    if state.engine.word == "dead":
        raise load_error(state)
    return state.engine.word in ("ready", "busy")


def load_error(state: State) -> InspectError:
    """The error of an engine that is dead: exit 3 when the model could not be had, else 5."""
    engine = state.engine
    lost = engine.code == "engine_lost"
    return InspectError(
        engine.message or "the engine is dead",
        engine.hint,
        exit_code=Exit.ENGINE if lost else Exit.MODEL,
        code=engine.code or "engine",
    )


def stop_daemon(paths: Paths) -> bool:
    """Ask it to leave, then insist; False when none was running.

    A daemon that does not answer gets SIGTERM, one that stays for two seconds SIGKILL: nothing of
    its logs is unsaved.
    """
    if not is_running(paths):
        return False
    try:
        pid = int(read_connection(paths)["pid"])
    except InspectError:
        if _gone(paths, STOP_S):  # it was on its way out
            return True
        raise
    try:
        asyncio.run(_ask_to_stop(paths))
    except InspectError:
        _signal(pid, signal.SIGTERM)
    if not _gone(paths, STOP_S):
        _signal(pid, signal.SIGKILL)
        _gone(paths, STOP_S)
    return True


async def _ask_to_stop(paths: Paths) -> None:
    async with DaemonClient(paths, client="stop", reconnect=False) as client:
        await client.command(StopDaemon())


def _gone(paths: Paths, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while is_running(paths):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
