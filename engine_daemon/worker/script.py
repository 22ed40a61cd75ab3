"""The model string of the scripted engine: `scripted` or `scripted:rate=5000,eos_at=20`.

Knows the keys and their limits; what they do stands in `backends.scripted`.
"""

from dataclasses import dataclass, fields, replace
from typing import Final

from engine_daemon.errors import Exit, InspectError
from engine_daemon.nearest import suggestion
from engine_daemon.protocol.synthetic import CONTEXT_LENGTH, VOCABULARY
from engine_daemon.protocol.worker import EngineOptions

_PREFIX: Final = "scripted"
_LARGEST_VOCABULARY: Final = 65_536
"""Rows are made in plain Python."""


@dataclass(frozen=True, slots=True)
class Script:
    """What the scripted engine is to do.

    `rate` is events a second (two a step), 0 = as fast as possible. `load_ms` loading takes so
    long. Ids from the built-in vocabulary up to `vocab` are padding, masked. The `…_at` are
    positions, 0 = never: the prediction after so many tokens is the end token, or the forward that
    would give it runs out of memory, fails, kills its process or never returns. These four happen
    when the sequence grows by one token, not when it is read again. `kv_bytes` are pretended a
    position.
    """

    seed: int = 0
    rate: int = 100
    load_ms: int = 0
    load_fail: int = 0
    vocab: int = VOCABULARY
    context: int = CONTEXT_LENGTH
    kv_bytes: int = 1024
    eos_at: int = 0
    no_memory_at: int = 0
    error_at: int = 0
    crash_at: int = 0
    hang_at: int = 0


_KEYS: Final = [field.name for field in fields(Script)]


def locate(options: EngineOptions, _progress: object) -> str:
    """Nothing to find: the model is built in. InspectError for a script that is wrong."""
    parse_script(options.model)
    return ""


def parse_script(model: str) -> Script:
    """The script in a model string; InspectError naming what is wrong.

    The default model of other engines counts as a script without keys, so that `--engine scripted`
    is enough.
    """
    if model in (_PREFIX, EngineOptions().model):
        return Script()
    name, colon, rest = model.partition(":")
    if name != _PREFIX or not colon:
        raise _bad(
            f"the scripted engine has no model {model!r}",
            "Use scripted, or scripted:rate=100,eos_at=20",
        )
    script = replace(Script(), **dict(_entry(entry) for entry in rest.split(",") if entry.strip()))
    if not VOCABULARY <= script.vocab <= _LARGEST_VOCABULARY:
        raise _bad(f"vocab={script.vocab}", f"Use {VOCABULARY} to {_LARGEST_VOCABULARY}")
    if script.context < 1:
        raise _bad("context=0", "A context has at least 1 position")
    return script


def _entry(entry: str) -> tuple[str, int]:
    key, _, value = (part.strip() for part in entry.partition("="))
    if key not in _KEYS:
        raise _bad(f"the scripted engine has no key {key!r}", suggestion(key, _KEYS))
    if not (value.isascii() and value.isdigit()):
        raise _bad(f"{key}={value} is no whole number", f"Write {key}=N, N = 0, 1, 2 …")
    return key, int(value)


def _bad(message: str, hint: str) -> InspectError:
    return InspectError(message, hint, exit_code=Exit.MODEL, code="bad_arg")
