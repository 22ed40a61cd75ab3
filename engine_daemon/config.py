"""What a daemon is started with, and the user's `config.toml`. Reads and writes files; starts
nothing."""

import contextlib
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, cast

import msgspec

from engine_daemon import options as check
from engine_daemon.errors import InspectError
from engine_daemon.nearest import suggestion
from engine_daemon.outside import parse_toml
from engine_daemon.paths import Paths, check_name, paths_for, read_regular
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.settings import KEYS, SECTIONS
from engine_daemon.theme_names import theme_names

CONFIG_FILE: Final = "config.toml"
IDLE_CACHE_S: Final = 1800.0
"""A session that stands and that nobody looks at gives its cache back after so long."""
STUCK_S: Final = 30.0
"""Without a sign of life, or of progress in an operation, the engine is called stuck."""
SPOOL_BYTES: Final = 10_000_000_000
"""The folder of recordings keeps so much of what is closed."""


class DaemonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one daemon, kept in its state directory for `restart`.

    `idle_exit_s` None = never. `implicit`: started by opening a screen or a run. `share`: who else
    may watch, `share_control`: command, as typed. `idle_cache_s`: when caches of
    sessions that nobody looks at are given back. `stuck_s`: when the engine is called stuck.
    `spool_bytes`: beyond so much the oldest closed recordings are removed.
    """

    engine: EngineOptions = EngineOptions()
    idle_exit_s: float | None = None
    implicit: bool = False
    idle_cache_s: float = IDLE_CACHE_S
    share: str = ""
    share_control: str = ""
    stuck_s: float = STUCK_S
    spool_bytes: int = SPOOL_BYTES

    def save(self, path: Path) -> None:
        """Write the file beside and rename it into place, 0600."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".new")
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(self))
        os.replace(beside, path)

    @classmethod
    def read(cls, path: Path) -> "DaemonOptions":
        """The options last saved; OSError or msgspec.ValidationError when there are none."""
        try:
            return msgspec.json.decode(read_regular(path), type=cls)
        except RecursionError:
            raise msgspec.DecodeError("it is nested too deeply") from None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of a daemon, on the command line or in its section of `config.toml`.

    None = not asked for: what the daemon has will do. `idle_exit_s` infinite = never.
    """

    engine: str | None = None
    model: str | None = None
    revision: str | None = None
    device: str | None = None
    dtype: check.Dtype | None = None
    tp: int | None = None
    max_context: int | None = None
    rows_bytes: int | None = None
    cache_bytes: int | None = None
    snapshot_every: int | None = None
    idle_exit_s: float | None = None
    verify: bool | None = None
    plain_engine: bool | None = None
    share: str | None = None
    share_control: str | None = None
    stuck_s: float | None = None
    spool_bytes: int | None = None

    def given(self) -> dict[str, object]:
        """The fields that were asked for."""
        fields = msgspec.structs.asdict(self)
        return {name: value for name, value in fields.items() if value is not None}

    def over(self, other: "Asked") -> "Asked":
        """Both; where both ask, this one counts."""
        return msgspec.structs.replace(other, **self.given())

    def checked(self) -> "Asked":
        """The same, once it fits together. Raises InspectError (exit 2)."""
        if self.device is not None and self.tp is not None:
            _check_devices(self.device, self.tp)
        return self

    def applied_to(self, options: DaemonOptions) -> DaemonOptions:
        """`options` with everything asked for put in. A model goes with its engine: for another one
        it is the usual again. Raises InspectError (exit 2) when devices and ranks do not fit:
        several devices mean one rank each."""
        engine = self.given()
        engine.pop("idle_exit_s", None)
        own = ("share", "share_control", "stuck_s", "spool_bytes")
        daemon = {key: engine.pop(key) for key in own if key in engine}
        if "engine" in engine:
            engine["backend"] = engine.pop("engine")
        if engine.get("backend", options.engine.backend) != options.engine.backend:
            engine = {"model": EngineOptions().model, "revision": None, **engine}
        if self.device is not None and self.tp is None and ":" in self.device:
            engine["tp"] = self.device.count(",") + 1
        device = str(engine.get("device", options.engine.device))
        _check_devices(device, cast("int", engine.get("tp", options.engine.tp)))
        idle = options.idle_exit_s
        if self.idle_exit_s is not None:
            idle = None if math.isinf(self.idle_exit_s) else self.idle_exit_s
        return msgspec.structs.replace(
            options,
            engine=msgspec.structs.replace(options.engine, **engine),
            idle_exit_s=idle,
            **daemon,
        )


def _check_devices(device: str, tp: int) -> None:
    if not check.devices_fit(device, tp):
        raise InspectError(
            f"--device {device} and --tp {tp} exclude each other: each device has one rank",
            f"Leave --tp out, or name {tp} device{'s' if tp > 1 else ''}",
        )


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """`config.toml`: `[paths]`, `[screen]`, one `[daemon.NAME]` for each daemon and one
    `[remote.HOST]` for each machine.

    `remotes`: the words of the `llm-inspect` there, by host.
    """

    runtime: Path | None = None
    state: Path | None = None
    cache: Path | None = None
    theme: str | None = None
    daemons: dict[str, Asked] = {}
    remotes: dict[str, tuple[str, ...]] = {}

    def paths(self, name: str) -> Paths:
        """The paths of daemon `name`."""
        return paths_for(name, runtime=self.runtime, state=self.state, cache=self.cache)


def read_config(folder: Path, faults: list[InspectError] | None = None) -> Config:
    """The user's configuration; the empty one when there is no file.

    Raises InspectError for a file that cannot be read, a key nobody knows, or a wrong value; with
    `faults` they are put there instead, and what they concern is left out.
    """
    path = folder / CONFIG_FILE
    reading = _Reading(path, faults)
    raw: dict[str, object] = {}
    with reading.fault():
        raw = _parse(path)
    reading.only("", raw, SECTIONS)
    flat = {name: reading.values(name, raw.get(name, {})) for name in ("paths", "screen")}
    daemons = {
        name: msgspec.convert(fields, Asked)
        for name, fields in reading.named("daemon", raw.get("daemon", {}))
    }
    remotes = {
        host: cast("tuple[str, ...]", fields["command"])
        for host, fields in reading.named("remote", raw.get("remote", {}))
        if fields
    }
    with reading.fault():
        _check_theme(path, flat["screen"])
    known = {**flat["paths"], **flat["screen"]}
    return msgspec.structs.replace(Config(daemons=daemons, remotes=remotes), **known)


def _check_theme(path: Path, screen: dict[str, object]) -> None:
    """Raise InspectError for a theme that is nowhere, which is then left out of `screen`."""
    theme = screen.get("theme")
    if theme is None:
        return
    names = theme_names(path.parent)
    if theme not in names:
        del screen["theme"]
        raise InspectError(
            f"{path}: theme in [screen] names no theme: {theme!r}", suggestion(str(theme), names)
        )


def _parse(path: Path) -> dict[str, object]:
    try:
        return parse_toml(read_regular(path).decode())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InspectError(f"cannot read {path}: {why}", "Mend the file or move it away") from None


class _Reading:
    """Takes tables apart by `settings.KEYS`; a fault is raised, or kept where there is a list."""

    def __init__(self, path: Path, faults: list[InspectError] | None) -> None:
        self._path = path
        self._faults = faults

    @contextlib.contextmanager
    def fault(self) -> Iterator[None]:
        """One thing that may be wrong."""
        try:
            yield
        except InspectError as error:
            if self._faults is None:
                raise
            self._faults.append(error)

    def only(self, where: str, keys: Iterable[str], known: Iterable[str]) -> None:
        """No other keys than these."""
        for key in keys:
            if key not in known:
                with self.fault():
                    place = f"in [{where}]" if where else "at the top"
                    raise InspectError(
                        f"{self._path}: unknown key {key!r} {place}", suggestion(key, known)
                    )

    def table(self, where: str, value: object) -> dict[str, object]:
        """A section; an empty one where it is none."""
        with self.fault():
            if isinstance(value, dict):
                return value
            raise InspectError(f"{self._path}: {where} must be a section, [{where}]")
        return {}

    def named(self, kind: str, value: object) -> Iterator[tuple[str, dict[str, object]]]:
        """Every `[kind.NAME]` with its fields."""
        for name, section in self.table(kind, value).items():
            with self.fault():
                if kind == "daemon":
                    check_name(name)
                yield name, self.values(f"{kind}.{name}", section)

    def values(self, where: str, value: object) -> dict[str, object]:
        """The fields of one section, each checked."""
        section = self.table(where, value)
        keys = {key.name: key for key in KEYS if key.section == where.split(".")[0]}
        self.only(where, section, keys)
        fields: dict[str, object] = {}
        for name, given in section.items():
            if name not in keys:
                continue
            with self.fault():
                try:
                    fields[keys[name].field] = keys[name].take(given)
                except ValueError as error:
                    raise InspectError(f"{self._path}: {name} in [{where}] {error}") from None
        return fields
