"""`daemon start|stop|restart|stacks`, and where the other verbs are.

Knows what is printed and asked; starting and stopping is `launch`'s.
"""

import asyncio
import getpass
import sys
from collections.abc import Callable, Mapping
from typing import Final

from engine_daemon.accounts import check_accounts
from engine_daemon.cli import listing, logs, status
from engine_daemon.cli.beforehand import (
    check_startable,
    keeps_options,
    last_options,
    other_model,
)
from engine_daemon.cli.options import Given
from engine_daemon.cli.output import say, tell
from engine_daemon.cli.progress import LoadProgress
from engine_daemon.cli.status import asks, engine_text
from engine_daemon.cli.target import (
    ASKING,
    Target,
    check_model,
    check_running,
    chosen,
    defaults,
    running_target,
    start,
    started_meanwhile,
    state_of,
    target_of,
    wait_for_connection,
)
from engine_daemon.client import DaemonClient
from engine_daemon.config import DaemonOptions
from engine_daemon.errors import Exit, InspectError
from engine_daemon.launch import stop_daemon, wait_ready
from engine_daemon.lookup import endpoint_of, is_running, no_daemon
from engine_daemon.paths import foreign
from engine_daemon.protocol.reads import AskStacks
from engine_daemon.protocol.state import State


def start_command(given: Given) -> int:
    """`daemon start`: returns when the model is ready, or the hub answers."""
    target = target_of(given, starts_daemon=True)
    check_model(target.asked)
    check_accounts(given.share or "", given.share_control or "")
    name = target.paths.name
    if not is_running(target.paths):
        try:
            _start(target, chosen(target, implicit=False), given)
            return 0
        except InspectError as error:
            if not started_meanwhile(target, error):
                raise
    wait_for_connection(target.paths)
    check_running(target)
    if not given.no_wait:
        _wait(target)
    say(f"the daemon {name} is running already")
    return 0


def _wait(target: Target) -> None:
    progress = LoadProgress()
    try:
        asyncio.run(wait_ready(target.paths, progress.update))
    finally:
        progress.close()


def _start(target: Target, options: DaemonOptions, given: Given) -> None:
    start(target, options, wait=not given.no_wait)
    if given.no_wait:
        say(f"the daemon {target.paths.name} runs; llm-inspect daemon status{target.option}")
    else:
        state = state_of(target)
        say(f"the daemon {target.paths.name} is ready: {engine_text(state.engine)}")
        for note in state.engine.details.notes:
            say(f"note: {note}")
    if options.share or options.share_control:
        may = (("watch", options.share), ("command", options.share_control))
        who = "; ".join(f"{names} may {what}" for what, names in may if names)
        where = endpoint_of(target.paths)
        say(f"shared: {who}. They: llm-inspect attach {getpass.getuser()}/{target.paths.name}")
        if where != foreign(f"{getpass.getuser()}/{target.paths.name}").endpoint:
            say(f"or, as its folder is another one: llm-inspect attach {where}")


def stop_command(given: Given) -> int:
    """`daemon stop`."""
    target = running_target(given)
    if not is_running(target.paths):
        raise no_daemon(target.paths.name)
    if not _may_stop(target, given):
        return Exit.DAEMON
    state = stop_daemon(target.paths)
    say(f"the daemon {target.paths.name} has stopped; its sessions open again at the next start")
    _say_in_use(target, state)
    return 0


def restart_command(given: Given) -> int:
    """`daemon restart`: the last start's options, except those given."""
    target = target_of(given, starts_daemon=True)
    check_model(target.asked)
    paths = target.paths
    last = last_options(paths)
    options = target.asked.applied_to(last or defaults(target, implicit=False))
    try:
        check_startable(options)
    except InspectError as error:
        raise keeps_options(error, paths) from None
    if note := other_model(last, target.asked, options):
        say(note)
    if is_running(paths):
        if not _may_stop(target, given):
            return Exit.DAEMON
        _say_in_use(target, stop_daemon(paths))
    if last is not None:  # until the model is loaded
        last.save(paths.before)
    try:
        _start(target, options, given)
    except InspectError as error:
        raise keeps_options(error, paths) from None
    return 0


def _others(state: State | None) -> list[str]:
    """Who is attached and stays."""
    viewers = [] if state is None else state.viewers
    return [f"{viewer.who} ({viewer.client})" for viewer in viewers if not asks(viewer)]


def _say_in_use(target: Target, state: State | None) -> None:
    """Nobody was asked, perhaps: who was sent away, and what ran. Sessions stand in their logs."""
    others = _others(state)
    if others:
        say(f"attached until then: {', '.join(others)}")
    ran = [] if state is None else [s.session for s in state.sessions if s.status == "running"]
    if ran:
        which = "it stands" if len(ran) == 1 else "they stand"
        resume = f"llm-inspect resume {ran[0]}{target.option}"
        say(f"ran until then: {', '.join(ran)}; {which} where the log ends, {resume} goes on")


def _may_stop(target: Target, given: Given) -> bool:
    """On a terminal, ask when others are attached."""
    if given.yes or not sys.stdin.isatty():
        return True
    try:
        others = _others(state_of(target))
    except InspectError:
        return True
    if not others:
        return True
    say(f"attached to the daemon {target.paths.name}: {', '.join(others)}")
    sys.stderr.write("Stop it all the same? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    say("left running")
    return False


def stacks_command(given: Given) -> int:
    """`daemon stacks`: where each rank of the engine is, also when it is stuck."""
    target = running_target(given)

    async def ask() -> str:
        async with DaemonClient(target.paths, client=ASKING, reconnect=False) as client:
            return (await client.ask(AskStacks())).text or ""

    for line in asyncio.run(ask()).splitlines():
        tell(line)
    return 0


COMMANDS: Final[Mapping[str, Callable[[Given], int]]] = {
    "start": start_command,
    "stop": stop_command,
    "restart": restart_command,
    "status": status.main,
    "logs": logs.main,
    "stacks": stacks_command,
    "list": listing.main,
}
"""Verb → what it does."""
