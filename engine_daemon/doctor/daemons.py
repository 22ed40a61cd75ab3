"""The daemons of this user on this machine: answering, of this version, reachable, shared."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from engine_daemon import __version__
from engine_daemon.client import DaemonClient
from engine_daemon.config import Config, DaemonOptions
from engine_daemon.doctor.folders import configured
from engine_daemon.doctor.row import Row, fail, ok, warn
from engine_daemon.errors import InspectError
from engine_daemon.lookup import is_running, read_connection
from engine_daemon.outside import parse_json
from engine_daemon.paths import Paths, is_let_through, name_option, read_regular, runtime_base
from engine_daemon.protocol.state import State

_HUB: Final = b"engine_daemon.hub"


def look() -> Iterator[Row]:
    """Each daemon whose folder is there, and those whose folder cannot be seen from here."""
    try:
        config = configured()
        base = runtime_base(config.runtime)
    except InspectError:  # told by `folders`
        return
    known = list(_known(base, config))
    for paths in known:
        yield from _one(paths)
    yield from _unseen({paths.runtime for paths in known}, base)
    if not any(is_running(paths) for paths in known):
        yield ok("daemon", "none is running; llm-inspect starts one")


def _known(base: Path, config: Config) -> Iterator[Paths]:
    with contextlib.suppress(OSError):
        for folder in sorted(base.iterdir()):
            try:
                name = str(parse_json(read_regular(folder / "conn.json"))["name"])
                yield config.paths(name)
            except (OSError, ValueError, KeyError, TypeError, InspectError):
                continue


def _one(paths: Paths) -> Iterator[Row]:
    area = f"daemon {paths.name}"
    if not is_running(paths):
        yield ok(area, "not running; what it left is taken up at its next start")
        return
    restart = f"llm-inspect daemon restart{name_option(paths.name)}"
    try:
        connection = read_connection(paths)
        state = asyncio.run(_state(paths))
    except InspectError as error:
        yield fail(area, error.message, error.hint or restart)
        return
    engine = state.engine
    many = len(state.sessions)
    sessions = f"{many} session{'' if many == 1 else 's'}"
    says = f"pid {connection['pid']}, engine {engine.word}, {sessions}"
    if connection["version"] != __version__:
        version = connection["version"]
        yield warn(area, f"{says}: it is {version}, this is {__version__}", restart)
    elif engine.word in ("dead", "stuck"):
        yield fail(area, f"{says}: {engine.message}", engine.hint or restart)
    else:
        yield ok(area, says)
    yield from _sharing(area, paths)


async def _state(paths: Paths) -> State:
    async with DaemonClient(paths, client="ask", reconnect=False) as client:
        return client.state


def _sharing(area: str, paths: Paths) -> Iterator[Row]:
    try:
        options = DaemonOptions.read(paths.options)
    except (OSError, msgspec.MsgspecError):
        return
    who = ", ".join(filter(None, (options.share, options.share_control)))
    if not who:
        return
    if is_let_through(paths):
        yield ok(area, f"shared with {who}")
    else:
        closed = next(
            folder
            for folder in (paths.runtime, *paths.runtime.parents)
            if not os.stat(folder).st_mode & 0o001
        )
        yield fail(area, f"shared with {who}, but {closed} keeps them out", f"chmod o+x {closed}")


def _unseen(known: set[Path], base: Path) -> Iterator[Row]:
    """Daemons of ours that run and are not those of the runtime directory looked at: of another
    one, or with a folder that is not what we see under its name, as theirs is another /tmp (a
    private one, a container). Nothing is wrong with them."""
    for folder, pid, name in _hubs():
        if folder in known or Path(os.path.realpath(folder)) in known:
            continue
        if _same_folder(folder, pid):
            if folder.parent == base.absolute():  # cleaned away: it makes it again within seconds
                continue
            where = f"LLM_INSPECT_RUNTIME_DIR={folder.parent} reaches it"
            yield ok("daemon", f"{name}, pid {pid}, has another runtime directory; {where}")
            continue
        yield warn(
            "daemon",
            f"{name}, pid {pid}, runs, with a {folder} that is not the one seen here:"
            " it has another /tmp (a private one, or a container's)",
            "Attach from where it was started, or set [paths] runtime to a folder that both see",
        )


def _hubs() -> Iterator[tuple[Path, int, str]]:
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if process.stat().st_uid == os.getuid() and _HUB in words:
                folder = words[words.index(b"--runtime") + 1]
                names = (word for word in words if word.startswith(b"--name="))
                name = os.fsdecode(next(names, b"--name=?")).removeprefix("--name=")
                yield Path(os.fsdecode(folder)), int(process.name), name


def _same_folder(folder: Path, pid: int) -> bool:
    """What the process sees at that path is what is here; True where that cannot be told."""
    try:
        theirs = os.stat(f"/proc/{pid}/root{folder}")
    except OSError:
        return True
    try:
        here = os.stat(folder)
    except OSError:
        return False
    return (here.st_dev, here.st_ino) == (theirs.st_dev, theirs.st_ino)
