"""What is asked of a daemon against what the running one has.

Knows options and the daemon's state; starts and stops nothing.
"""

import math
import shlex
from dataclasses import dataclass
from typing import Final

import msgspec

from engine_daemon.config import CONFIG_FILE, Asked, DaemonOptions
from engine_daemon.errors import Exit, InspectError
from engine_daemon.options import duration_text
from engine_daemon.paths import Paths, name_option
from engine_daemon.protocol.state import EngineState

NO_OPTIONS: Final = ("rows_bytes", "cache_bytes", "snapshot_every", "stuck", "spool_bytes")
"""Keys of `[daemon.NAME]` that the command line has no option for. They bound what is kept and how
long is waited, and change nothing that is computed: another value in force is told, and will do."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something asked for that the daemon runs without; values as one would type them."""

    key: str
    wanted: str
    runs: str

    @property
    def typed(self) -> str:
        """The option that asks for it."""
        option = f"--{self.key.replace('_', '-')}"
        return option if self.wanted == "on" else f"{option} {shlex.quote(self.wanted)}"


def check_asked(paths: Paths, asked: Asked, typed: Asked, engine: EngineState) -> list[str]:
    """What is to be said of keys in which the running daemon may differ, a line each.

    `typed`: the part of `asked` that the command line asks for; the rest is `config.toml`'s.
    Raises InspectError (exit 4) when the daemon is not as asked for.
    """
    try:
        running = DaemonOptions.read(paths.options)
    except (OSError, msgspec.MsgspecError):
        return []
    differing = differences(asked, running, engine)
    told = [one for one in differing if one.key in NO_OPTIONS]
    refused = [one for one in differing if one not in told]
    restart = f"llm-inspect daemon restart{name_option(paths.name)}"
    if refused:
        names = {_key(field) for field in typed.given()}
        raise _other_options(paths, refused, [one for one in refused if one.key in names], restart)
    return [
        f"note: {CONFIG_FILE} asks for {one.key} {one.wanted}; the daemon {paths.name} has"
        f" {one.runs} until it is restarted: {restart}"
        for one in told
    ]


def _other_options(
    paths: Paths, refused: list[Difference], typed: list[Difference], restart: str
) -> InspectError:
    """The restart named needs only what was typed: it reads `config.toml` by itself."""
    configured = [one for one in refused if one not in typed]
    have = ", ".join(f"{one.key.replace('_', '-')} {one.runs}" for one in refused)
    options = "".join(f" {one.typed}" for one in typed)
    wishes = [f"asked for was{options}"] if typed else []
    if configured:
        keys = ", ".join(f"{one.key} {one.wanted}" for one in configured)
        wishes.append(f"{CONFIG_FILE} asks for {keys}")
    else_do = "choose another with --name"
    if configured and not typed:
        else_do = f"take {', '.join(one.key for one in configured)} out of {CONFIG_FILE}"
    return InspectError(
        f"the daemon {paths.name} runs with {have}; {'; '.join(wishes)}",
        f"Restart it: {restart}{options}; or {else_do}",
        exit_code=Exit.DAEMON,
        code="other_options",
    )


def differences(asked: Asked, running: DaemonOptions, engine: EngineState) -> list[Difference]:
    """Everything asked for that is otherwise."""
    loaded = engine.model
    actual = {"device": loaded.device, "dtype": loaded.dtype} if loaded else {}
    found = []
    have: dict[str, object] = msgspec.structs.asdict(running.engine)
    for name in ("share", "share_control", "stuck_s", "spool_bytes"):
        have[name] = getattr(running, name)
    have["engine"] = running.engine.backend
    have["idle_exit_s"] = math.inf if running.idle_exit_s is None else running.idle_exit_s
    for name, wanted in asked.given().items():
        now = actual.get(name, "")
        same = wanted in (have[name], now, now.split(":")[0])
        if not same and not (wanted == "auto" and name in ("device", "dtype")):
            found.append(Difference(_key(name), _written(wanted), _written(have[name])))
    return found


def _key(field: str) -> str:
    """The key of `config.toml` that a field of `Asked` comes from."""
    return field.removesuffix("_s")


def _written(value: object) -> str:
    """An option's value as one would type it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return duration_text(value)
    return "unset" if value in (None, "") else str(value)
