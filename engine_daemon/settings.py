"""The table of keys of `config.toml`, one row a key. `docs/config.md` shows it; a test compares.

Knows values; reads no file.
"""

import contextlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine_daemon import options as check

SECTIONS: Final = ("paths", "screen", "daemon", "remote")
"""`[paths]`, `[screen]`, `[daemon.NAME]`, `[remote.HOST]`."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `example` is TOML; `take` gives the value for `field`, or raises ValueError with the
    end of a sentence that begins with the key."""

    section: str
    name: str
    example: str
    says: str
    take: Callable[[object], object]
    field: str


def _text(convert: Callable[[str], object]) -> Callable[[object], object]:
    """A text or a number, as it would be typed on the command line."""

    def take(value: object) -> object:
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise ValueError("takes a text or a number")
        return convert(str(value))

    return take


def _switch(value: object) -> object:
    return value if isinstance(value, bool) else _text(check.switch)(value)


def _folder(value: object) -> Path:
    folder = Path()
    if isinstance(value, str) and "\0" not in value:
        with contextlib.suppress(RuntimeError):  # `~somebody` who is not here
            folder = Path(value).expanduser()
    if not folder.is_absolute():
        raise ValueError(f"takes an absolute path, not {value!r}")
    return folder


def _theme(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("takes a theme's name")
    return value


def _words(value: object) -> tuple[str, ...]:
    words: list[str] = []
    if isinstance(value, str) and "\0" not in value:
        with contextlib.suppress(ValueError):  # a quote that is not closed
            words = shlex.split(value)
    if not words:
        raise ValueError(f"takes a command, not {value!r}")
    return tuple(words)


def _daemon(name: str, example: str, says: str, convert: Callable[[str], object]) -> Key:
    field = {"idle_exit": "idle_exit_s", "stuck": "stuck_s"}.get(name, name)
    return Key("daemon", name, example, says, _text(convert), field)


KEYS: Final = (
    Key(
        *("paths", "runtime", '"/tmp/me"'),
        "sockets and locks: a short path on this machine, yours alone; `$LLM_INSPECT_RUNTIME_DIR`"
        " counts more. Default `/tmp/llmi-<uid>`",
        *(_folder, "runtime"),
    ),
    Key(
        *("paths", "state", '"/data/llm-inspect"'),
        "recordings and logs. Default `$XDG_STATE_HOME/llm-inspect`",
        *(_folder, "state"),
    ),
    Key(
        *("paths", "cache", '"/big/disk/llm-inspect"'),
        "models. Default `$XDG_CACHE_HOME/llm-inspect`",
        *(_folder, "cache"),
    ),
    Key(
        *("screen", "theme", '"paper"'),
        "`ink`, `paper`, `ansi-dark`, `ansi-light`, or the name of one in `themes/*.toml` beside"
        " this file. Default `ink`",
        *(_theme, "theme"),
    ),
    _daemon(
        "engine", '"hf"', "`hf`, or `scripted` (no model, synthetic). Default `hf`", check.engine
    ),
    _daemon("model", '"smollm2-135m"', "a name, a directory or a `.gguf` file", check.plain),
    _daemon("revision", '"main"', "of a model from the hub", check.plain),
    _daemon("device", '"cuda:0,2"', "`auto`, `cpu`, `cuda`, `cuda:N` or `cuda:N,M`", check.device),
    _daemon("dtype", '"bf16"', "`auto`, `bf16`, `fp16` or `fp32`. Default `auto`", check.dtype),
    _daemon("tp", "2", "tensor-parallel ranks. Default 1, or one a device", check.ranks),
    _daemon(
        "max_context",
        "4096",
        "positions a session may grow to. Default the model's",
        check.whole(1, check.COUNT),
    ),
    _daemon("rows_bytes", "1000000000", "host memory for kept logits rows", check.whole(0)),
    _daemon(
        "cache_bytes",
        "8000000000",
        "caches and snapshots together, a rank. Default 85 % of what is free after loading",
        check.whole(1),
    ),
    _daemon(
        "snapshot_every",
        "32",
        "steps between two snapshots. Default 32",
        check.whole(1, check.COUNT),
    ),
    _daemon(
        "idle_exit",
        '"2h"',
        "leave after so long without use; `0`: with the last viewer; `never`",
        check.idle_exit,
    ),
    _daemon(
        "stuck",
        '"30s"',
        "call the engine stuck after so long in one operation. Default 30 s or ten times what it"
        " took at most",
        check.patience,
    ),
    _daemon(
        "spool_bytes",
        "10000000000",
        "room for recordings; then the oldest closed ones that nobody keeps go. Default 10 GB",
        check.whole(0),
    ),
    Key(
        *("daemon", "plain_engine", "true"),
        "the library's model as it is, nothing made faster. Default false",
        *(_switch, "plain_engine"),
    ),
    Key(
        *("daemon", "verify", "true"),
        "hash the weights files while loading. Default false",
        *(_switch, "verify"),
    ),
    _daemon("share", '"alice,@lab"', "accounts and @groups that may watch", check.accounts),
    _daemon("share_control", '"bob"', "accounts and @groups that may command", check.accounts),
    Key(
        *("remote", "command", '"~/venv/bin/llm-inspect"'),
        "how `llm-inspect` is started on HOST (as written in `attach ssh://HOST`), where it is"
        " neither on the PATH there nor in `~/.local/bin`",
        *(_words, "command"),
    ),
)
"""Every key, in the order in which people read of them."""
