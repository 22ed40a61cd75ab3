"""Which daemon a command means, what is asked of it, and having it run.

Knows configuration, options and launching; nothing of sessions.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from engine_daemon.cli.asked import check_asked
from engine_daemon.cli.beforehand import in_words, options_before, others_before
from engine_daemon.cli.options import Given
from engine_daemon.cli.output import say
from engine_daemon.cli.progress import LoadProgress
from engine_daemon.cli.request import asked as asked_for
from engine_daemon.cli.signals import take_sighup
from engine_daemon.client import DaemonClient
from engine_daemon.config import Asked, Config, DaemonOptions, read_config
from engine_daemon.errors import Exit, InspectError
from engine_daemon.launch import start_daemon
from engine_daemon.lookup import is_running, no_daemon, read_connection
from engine_daemon.mending import Tunnel
from engine_daemon.paths import DEFAULT_NAME, WHERE, Paths, foreign, name_option, paths_for
from engine_daemon.protocol.state import State
from engine_daemon.protocol.worker import EngineOptions

IMPLICIT_IDLE_S: Final = 2 * 3600.0
"""Idle exit of a daemon that a screen or a run started."""
ASKING: Final = "ask"
"""Name of a client that only looks at the state."""
_NOTHING: Final = Asked()
_CONNECTION_S: Final = 10.0
_POLL_S: Final = 0.02
_LEAVING_S: Final = 5.0
"""A daemon that leaves needs two seconds at most."""
_TRIES: Final = 3
_UNREACHED: Final = ("no_daemon", "no_answer", "link_lost", "not_sent")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """A daemon as a command line means it. `typed`: what of `asked` is not `config.toml`'s."""

    paths: Paths
    asked: Asked
    theme: str | None = None
    tunnel: Tunnel | None = None
    typed: Asked = _NOTHING

    @property
    def option(self) -> str:
        """` --name NAME` where that is needed, for commands written in hints."""
        return name_option(self.paths.name)


def target_of(given: Given, *, starts_daemon: bool = False) -> Target:
    """The daemon meant. Limits given to a command that opens a session are the session's."""
    name = given.name or DEFAULT_NAME
    config = read_config(paths_for(name).config)
    section = config.daemons.get(name, Asked())
    line = asked_for(given, max_context=given.max_context if starts_daemon else None)
    asked = line.over(section).checked()
    return Target(config.paths(name), asked, config.theme, typed=line)


def running_target(given: Given) -> Target:
    """The daemon meant, for who asks nothing of it: a wrong `config.toml` is told, and what of it
    can be used is. A running daemon can always be looked at and stopped."""
    name = given.name or DEFAULT_NAME
    return Target(lenient_config().paths(name), Asked())


def lenient_config() -> Config:
    """What can be used of `config.toml`; what cannot is told as a warning."""
    faults: list[InspectError] = []
    config = read_config(paths_for().config, faults)
    for fault in faults:
        hint = f" ({fault.hint})" if fault.hint else ""
        say(" ".join(f"warning: {fault.message}{hint}; going on without it".split()))
    return config


def attach_target(arguments: list[str], given: Given) -> Target:
    """The daemon that `attach WHERE` means, on this machine."""
    where = arguments[0] if arguments else None
    if where == "":
        raise InspectError("WHERE is empty", f"attach takes {WHERE}")
    if where is not None and ("/" in where or ":" in where):
        if given.name is not None:
            raise InspectError(f"two daemons are named: {where} and {given.name}")
        return Target(foreign(where), Asked(), read_config(paths_for().config).theme)
    if where is not None and given.name not in (None, where):
        raise InspectError(f"two daemons are named: {where} and {given.name}")
    return target_of(dataclasses.replace(given, name=where or given.name))


@contextlib.contextmanager
def reached(arguments: list[str], given: Given) -> Iterator[Target]:
    """The daemon that `attach WHERE` means, here or elsewhere, while it is attached to."""
    where = arguments[0] if arguments else ""
    if not where.startswith("ssh:"):
        yield attach_target(arguments, given)
        return
    from engine_daemon.remote.address import parse_remote  # for who goes elsewhere only
    from engine_daemon.remote.tunnel import Tunnel as SshTunnel

    remote = parse_remote(where)
    if given.name is not None:
        raise InspectError(f"two daemons are named: {where} and {given.name}")
    config, own = read_config(paths_for().config), paths_for()
    command = config.remotes.get(remote.host, ())
    take_sighup()  # ssh and its folder end with this process, whatever ends it
    with SshTunnel(remote, say, command, config.runtime) as tunnel:
        yield Target(tunnel.paths(own), Asked(), config.theme, tunnel)


def defaults(target: Target, *, implicit: bool) -> DaemonOptions:
    """What a daemon is started with where nothing is asked for."""
    return DaemonOptions(
        engine=EngineOptions(cache_dir=str(target.paths.cache.absolute())),
        idle_exit_s=IMPLICIT_IDLE_S if implicit else None,
        implicit=implicit,
    )


def chosen(target: Target, *, implicit: bool) -> DaemonOptions:
    """The options of a start: what is asked for, else the usual; after a restart that failed, what
    ran before it. Where the last daemon had others, they are told. InspectError as `applied_to`."""
    before = options_before(target.paths)
    if before is not None:
        say(f"the last restart failed: this start goes back to {in_words(before.engine)}")
        return target.asked.applied_to(before)
    options = target.asked.applied_to(defaults(target, implicit=implicit))
    others = others_before(target.paths, target.asked, options)
    if others is not None:
        again = f"llm-inspect daemon restart{target.option} {others}"
        say(f"note: the last daemon {target.paths.name} had other options; to have them: {again}")
    return options


def ensure_running(target: Target) -> None:
    """Start the daemon if none runs, showing how the model loads on standard error. One that is
    about to leave is waited for, and another started.

    Raises InspectError: 3 when the model cannot be had, 4 when there can be no daemon, or the one
    that runs is not as asked for.
    """
    check_model(target.asked)
    for _ in range(_TRIES):
        try:
            _start_or_join(target)
            return
        except InspectError as error:
            if not left(target.paths, error):
                raise
            failure = error
    raise failure


def _start_or_join(target: Target) -> None:
    if not is_running(target.paths):
        try:
            start(target, chosen(target, implicit=True))
            return
        except InspectError as error:
            # Somebody else may have started one at the same moment; theirs will do.
            if not started_meanwhile(target, error):
                raise
    wait_for_connection(target.paths)
    check_running(target)


def left(paths: Paths, error: InspectError) -> bool:
    """The daemon that this error is about was on its way out, and is gone now."""
    return error.code in _UNREACHED and not _still_there(paths, _LEAVING_S)


class DaemonLeftError(Exception):
    """What was to be done was not begun: the daemon left at that moment."""

    def __init__(self, error: InspectError) -> None:
        super().__init__(error.message)
        self.error = error


def on_running(target: Target, act: Callable[[], T]) -> T:
    """`act` on a daemon that is started if need be; begun again where that one left before `act`
    reached it, which `act` tells by DaemonLeftError. Raises InspectError as `ensure_running`."""
    for _ in range(_TRIES):
        ensure_running(target)
        try:
            return act()
        except DaemonLeftError as gone:
            failure = gone.error
            if not left(target.paths, failure):
                break
    raise failure


@contextlib.asynccontextmanager
async def attached_or_gone(client: DaemonClient) -> AsyncIterator[DaemonClient]:
    """The client, attached; DaemonLeftError when it could not be."""
    try:
        await client.__aenter__()
    except InspectError as error:
        raise DaemonLeftError(error) from None
    try:
        yield client
    except BaseException as error:
        await client.__aexit__(type(error), error, error.__traceback__)
        raise
    await client.__aexit__(None, None, None)


def started_meanwhile(target: Target, error: InspectError) -> bool:
    """Ours could not start because somebody else's runs."""
    return error.code in ("running", "no_daemon") and is_running(target.paths)


def state_of(target: Target) -> State:
    """The daemon's state now. Raises InspectError (exit 4) when it cannot be had."""
    return asyncio.run(_ask_state(target))


async def _ask_state(target: Target) -> State:
    async with DaemonClient(target.paths, client=ASKING, reconnect=False) as client:
        return client.state


def start(target: Target, options: DaemonOptions, *, wait: bool = True) -> None:
    """Start a daemon with a progress display; it goes on loading when this is interrupted."""
    progress = LoadProgress()
    try:
        start_daemon(target.paths, options, progress.update, "ready" if wait else "hub")
    except InspectError as error:
        if error.exit_code is Exit.MODEL:
            _still_there(target.paths, _LEAVING_S)
        raise
    except KeyboardInterrupt:
        progress.close()
        say(f"the daemon {target.paths.name} goes on loading")
        raise
    finally:
        progress.close()


def _still_there(paths: Paths, patience_s: float) -> bool:
    """It holds its lock; one that is on its way out is waited for."""
    deadline = time.monotonic() + patience_s
    while there := is_running(paths):
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    return there


def wait_for_connection(paths: Paths) -> None:
    """A daemon that holds its lock writes its connection file soon after."""
    deadline = time.monotonic() + _CONNECTION_S
    while is_running(paths):
        try:
            read_connection(paths)
            return
        except InspectError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)
    raise no_daemon(paths.name)


def check_model(asked: Asked) -> None:
    """Raise InspectError (exit 3) for a local model that is not there, whatever runs."""
    model = asked.model
    if model is None or asked.engine not in (None, "hf") or not Path(model).is_absolute():
        return
    if not Path(model).exists():
        kind = "file" if model.endswith(".gguf") else "folder"
        raise InspectError(
            f"there is no {kind} {model}",
            "Check the path of the model",
            exit_code=Exit.MODEL,
            code="model",
        )


def check_running(target: Target) -> None:
    """See that the running daemon is as asked for; say in what it need not be, and is not.

    Raises InspectError (exit 4) when it is not.
    """
    if target.asked.given():
        engine = state_of(target).engine
        for line in check_asked(target.paths, target.asked, target.typed, engine):
            say(line)
