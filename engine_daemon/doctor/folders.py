"""The folders: ours, local, private, writable, with room; and `config.toml` in one of them."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from engine_daemon.config import CONFIG_FILE, Config, read_config
from engine_daemon.doctor.mounts import Mount, existing, mount_of, mounts
from engine_daemon.doctor.row import Row, fail, ok, warn
from engine_daemon.errors import InspectError
from engine_daemon.paths import Paths, foreign_folder, paths_for
from engine_daemon.sizes import sized

LITTLE: Final = 1_000_000_000
NOTHING: Final = 16_000_000
"""Bytes free: with less than the one there is little room, with less than the other none."""
_ELSEWHERE: Final = "Set LLM_INSPECT_RUNTIME_DIR to a folder of your own"
_CHOOSE: Final = "Choose another in config.toml [paths]"


def look() -> Iterator[Row]:
    """Configuration first: it says where the others are."""
    try:
        own = paths_for()
    except InspectError as error:
        yield fail("runtime", error.message, error.hint)
        return
    faults: list[InspectError] = []
    config = read_config(own.config, faults)
    yield from _config(own.config, faults)
    try:
        paths = config.paths(own.name)
    except InspectError as error:
        yield fail("runtime", error.message, error.hint)
        return
    table = mounts()
    yield from _runtime(paths, table)
    yield from _kept("state", paths.state, table, "recordings and logs")
    yield from _kept("cache", paths.cache, table, "models")
    yield from _home(table)


def configured() -> Config:
    """What can be used of `config.toml`."""
    return read_config(paths_for().config, [])


def _config(folder: Path, faults: list[InspectError]) -> Iterator[Row]:
    path = folder / CONFIG_FILE
    for fault in faults:
        yield fail("config", fault.message, fault.hint or "See docs/config.md")
    try:
        info = path.stat()
    except OSError:
        if not faults:
            yield ok("config", f"{path}: none, which is fine")
        return
    if info.st_uid not in (os.getuid(), 0) or stat.S_IMODE(info.st_mode) & 0o022:
        yield warn("config", f"{path} can be written by others", f"chmod go-w {path}")
    elif not faults:
        yield ok("config", str(path))


def _runtime(paths: Paths, table: list[Mount]) -> Iterator[Row]:
    """Sockets: ours alone, on this machine, in a folder that everybody who logs in sees alike."""
    for folder in (paths.runtime.parent, paths.runtime):
        yield from _ours(folder)
    mount = mount_of(paths.runtime, table)
    if mount is not None and mount.network:
        yield fail(
            "runtime",
            f"{paths.runtime.parent} lies on {mount.kind}: sockets and locks need a local disk",
            "Set LLM_INSPECT_RUNTIME_DIR, or config.toml [paths] runtime, to a local folder",
        )
    if mount is not None and mount.private:
        yield warn(
            "runtime",
            f"{mount.point} is this login's own (private tmp): others see another one",
            "Set config.toml [paths] runtime to a folder that all your logins see",
        )
    here = existing(paths.runtime)
    if not os.access(here, os.W_OK | os.X_OK):
        yield fail("runtime", f"{here} cannot be written", _ELSEWHERE)


def _ours(folder: Path) -> Iterator[Row]:
    try:
        info = os.lstat(folder)
    except FileNotFoundError:
        yield ok("runtime", f"{folder}: made when it is needed")
        return
    except OSError as error:
        yield fail("runtime", f"{folder}: {error.strerror}", _ELSEWHERE)
        return
    problem = foreign_folder(info)
    if problem:
        ours = "open to others" in problem
        do = f"chmod 700 {folder}" if ours else f"Remove it. {_ELSEWHERE}"
        yield fail("runtime", f"{folder} {problem}", do)
    else:
        yield ok("runtime", f"{folder}, mode {stat.S_IMODE(info.st_mode):o}")


def _kept(area: str, folder: Path, table: list[Mount], what: str) -> Iterator[Row]:
    here = existing(folder)
    if not here.is_dir() or not os.access(here, os.W_OK | os.X_OK):
        yield fail(area, f"{here} cannot be written: no {what}", f"Make it writable. {_CHOOSE}")
        return
    free = shutil.disk_usage(here).free
    says = f"{folder}, {sized(free)} free"
    mount = mount_of(folder, table)
    if free < NOTHING:
        yield fail(area, f"{says}: no room for {what}", f"Make room. {_CHOOSE}")
    elif free < LITTLE:
        yield warn(area, f"{says}: little room for {what}", f"Make room. {_CHOOSE}")
    elif mount is not None and mount.network and area == "state":
        yield warn(
            area,
            f"{says}, on {mount.kind}: each step waits for the network, locks may not hold",
            f"{_CHOOSE}: a local disk",
        )
    else:
        yield ok(area, says)


def _home(table: list[Mount]) -> Iterator[Row]:
    mount = mount_of(Path.home(), table)
    if mount is not None and mount.network:
        yield warn(
            "home",
            f"{Path.home()} lies on {mount.kind}",
            "Recordings are kept by host there; config.toml [paths] state can be a local disk",
        )
