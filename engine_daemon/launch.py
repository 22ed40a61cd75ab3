"""Start a daemon that outlives its terminal, and stop one.

Knows processes and the daemon's state; asks nobody anything and prints nothing.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, Literal

from engine_daemon.client import DaemonClient
from engine_daemon.config import DaemonOptions
from engine_daemon.errors import Exit, InspectError
from engine_daemon.lookup import is_halted, is_running, owner, process_state, read_connection
from engine_daemon.paths import Paths, check_places, make_runtime, name_option, unusable
from engine_daemon.protocol.codec import WireError
from engine_daemon.protocol.commands import StateMessage, StopDaemon
from engine_daemon.protocol.state import State

HUB_UP_S: Final = 10.0
STOP_S: Final = 2.0
KILL_S: Final = 1.7
ASK_S: Final = 0.8
_POLL_S: Final = 0.01

STOPPING: Final = "stop"
"""Name of the client that asks a daemon to leave."""
OnState = Callable[[State], None]


def start_daemon(
    paths: Paths,
    options: DaemonOptions,
    on_state: OnState | None = None,
    wait: Literal["hub", "ready"] = "ready",
) -> None:
    """Start it detached: own session, stdio to its log, cwd `/`. Returns when it answers (`hub`)
    or the model is loaded (`ready`).

    Raises InspectError: exit 4 when the hub cannot start (`running`: there is one by now), 3 when
    the model cannot be loaded.
    """
    make_runtime(paths)
    check_places(paths)
    try:
        with _only_one(paths):
            _start_hub(paths, options)
    except OSError as error:
        raise unusable(error) from None
    if wait == "ready":
        try:
            asyncio.run(wait_ready(paths, on_state))
        except InspectError as error:
            if error.code != "no_daemon" or is_running(paths):
                raise
            raise InspectError(
                f"the daemon {paths.name} ended while it was starting",
                f"See {paths.log}",
                exit_code=Exit.DAEMON,
                code="no_daemon",
            ) from None


@contextlib.contextmanager
def _only_one(paths: Paths) -> Iterator[None]:
    """Of several that start a daemon at the same moment, one does; the others find it running."""
    fd = os.open(paths.runtime, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline = time.monotonic() + HUB_UP_S
    try:
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(_POLL_S)
        if is_running(paths):
            raise InspectError(
                f"the daemon {paths.name} is running already",
                f"llm-inspect daemon status{name_option(paths.name)}",
                exit_code=Exit.DAEMON,
                code="running",
            )
        yield
    finally:
        os.close(fd)


def _start_hub(paths: Paths, options: DaemonOptions) -> None:
    options.save(paths.options)
    paths.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with paths.log.open("ab") as log:
        said_before = log.tell()
        os.chmod(paths.log, 0o600)
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "engine_daemon.hub",
                f"--name={paths.name}",  # a name may begin with a dash
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
    _wait_for_hub(paths, process, said_before)
    # Whoever started it is its parent until it ends itself: leave no zombie when it does.
    threading.Thread(target=process.wait, daemon=True).start()


def _wait_for_hub(paths: Paths, process: "subprocess.Popen[bytes]", said_before: int) -> None:
    deadline = time.monotonic() + HUB_UP_S
    while time.monotonic() < deadline:
        code = process.poll()
        if code is not None:
            words, hint = _last_words(paths, said_before)
            raise InspectError(
                f"the daemon ended at once: {words or f'exit {code}'}",
                hint or f"See {paths.log}",
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


def _last_words(paths: Paths, said_before: int) -> tuple[str, str]:
    """What a hub that ended said last, and its hint: the text of an error, or of an exception."""
    try:
        said = paths.log.read_bytes()[said_before:].decode("utf-8", "replace")
    except OSError:
        return "", ""
    _, found, error = said.rpartition(" ERROR ")
    lines = [line.strip() for line in (error if found else said).splitlines() if line.strip()]
    if found and not any(line.startswith("Traceback") for line in lines):
        return lines[0] if lines else "", lines[1] if len(lines) > 1 else ""
    return lines[-1] if lines else "", ""


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
    if state.engine.word == "dead" and not state.engine.details.again:
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


def stop_daemon(paths: Paths) -> State | None:
    """Ask it to leave, then insist. Its state when it was asked; None when it did not answer, or
    none was running.

    A daemon that does not answer gets SIGTERM, one that stays SIGKILL, all within two seconds:
    nothing of its logs is unsaved. Raises InspectError when its process is not known.
    """
    begun = time.monotonic()
    state = None
    if not is_running(paths):
        return None
    pid = owner(paths)
    try:
        pid = pid or int(read_connection(paths)["pid"])
    except InspectError as error:
        if _gone(paths, None, begun + STOP_S):  # it was on its way out
            return None
        error.hint = f"End the process that holds {paths.lock}: fuser -k {paths.lock}"
        raise
    if is_halted(pid):  # it hears nothing
        _signal(pid, signal.SIGKILL)
    else:
        try:
            state = asyncio.run(_ask_to_stop(paths))
        except (InspectError, TimeoutError):
            _signal(pid, signal.SIGTERM)
    if not _gone(paths, pid, begun + KILL_S):
        _signal(pid, signal.SIGKILL)
        _gone(paths, pid, begun + STOP_S)
    return state


async def _ask_to_stop(paths: Paths) -> State:
    async with asyncio.timeout(ASK_S):
        async with DaemonClient(paths, client=STOPPING, reconnect=False) as client:
            state = client.state
            await client.command(StopDaemon())
            return state


def _gone(paths: Paths, pid: int | None, deadline: float) -> bool:
    """Its lock is free and its process has ended: a process outlives its lock by a moment."""
    while is_running(paths) or (pid is not None and process_state(pid) not in ("Z", "X")):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
