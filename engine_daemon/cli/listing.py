"""`daemon list`: the daemons of this user on this machine, and what each is at.

Each is asked, all at once; one that is halted or does not answer is named as that.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from engine_daemon.cli.options import Given
from engine_daemon.cli.output import tell
from engine_daemon.cli.table import table
from engine_daemon.cli.target import ASKING, lenient_config
from engine_daemon.client import DaemonClient
from engine_daemon.errors import InspectError
from engine_daemon.lookup import halted_words, is_halted, read_connection
from engine_daemon.outside import parse_json
from engine_daemon.paths import Paths, read_regular, runtime_base

HALTED: Final = "halted"
_KEYS: Final = ("name", "pid", "version", "started")
Connection = Mapping[str, Any]


class Listed(NamedTuple):
    """A daemon that runs. `state`: the engine's word, `halted`, or the code of the error that
    asking ended in; `words`: the same for people, and what to do."""

    connection: Connection
    state: str
    words: str


def main(given: Given) -> int:
    """`daemon list`."""
    found = asyncio.run(_look())
    if given.json:
        for one in found:
            tell(json.dumps({key: one.connection[key] for key in _KEYS} | {"state": one.state}))
    elif found:
        tell(table(("NAME", "PID", "UP", "VERSION", "STATE"), [_row(one) for one in found]))
    else:
        tell("no daemon is running")
    return 0


def _row(one: Listed) -> tuple[str, ...]:
    there = one.connection
    up = span(time.time() - float(there["started"]))
    return str(there["name"]), str(there["pid"]), up, str(there["version"]), one.words


async def _look() -> list[Listed]:
    """All of them, by name; who has left meanwhile is none."""
    looked = await asyncio.gather(*(_ask(paths, there) for paths, there in _running()))
    there = [one for one in looked if one is not None]
    return sorted(there, key=lambda one: str(one.connection["name"]))


async def _ask(paths: Paths, there: Connection) -> Listed | None:
    pid = int(there["pid"])
    if is_halted(pid):
        return Listed(there, HALTED, f"{HALTED}: {halted_words(pid)}")
    try:
        async with DaemonClient(paths, client=ASKING, reconnect=False) as client:
            word = client.state.engine.word
            return Listed(there, word, word)
    except InspectError as error:
        if error.code == "no_daemon":
            return None
        said = error.message.removeprefix(f"the daemon {paths.name} ")
        return Listed(there, error.code, f"{said}: {error.hint}" if error.hint else said)


def _running() -> Iterator[tuple[Paths, Connection]]:
    config = lenient_config()
    for folder in _folders(runtime_base(config.runtime)):
        try:
            name = str(parse_json(read_regular(folder / "conn.json"))["name"])
            paths = config.paths(name)
            if paths.runtime.name == folder.name:  # else a copy of another one's
                yield paths, read_connection(paths)
        except (OSError, ValueError, KeyError, TypeError, InspectError):
            continue


def _folders(base: Path) -> list[Path]:
    try:
        return sorted(folder for folder in base.iterdir() if folder.is_dir())
    except OSError:
        return []


def span(seconds: float) -> str:
    """A time for people: `90 s`, `12 min`, `2.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
