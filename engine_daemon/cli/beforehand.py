"""What is known of a start before anything is stopped for it, and what a failed one goes back to.

Reads configuration files of models, and asks a process of the engine's; loads nothing.
"""

import json
import shlex
from pathlib import Path
from typing import Final

import msgspec

from engine_daemon.accounts import check_accounts
from engine_daemon.cli.engine_process import answer
from engine_daemon.config import Asked, DaemonOptions
from engine_daemon.errors import Exit, InspectError
from engine_daemon.model_store import DEMO_NAME, cached_models, find_cached
from engine_daemon.outside import parse_json
from engine_daemon.paths import Paths, name_option, read_regular
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.shares import why_not

_MODULE: Final = "engine_daemon.worker.startable"


def check_startable(options: DaemonOptions) -> None:
    """Raise InspectError for what can never load (exit 3), or be shared with (2). What passes may
    still fail."""
    check_accounts(options.share, options.share_control)
    engine = options.engine
    if engine.backend != "hf":
        if engine.ranks > 1:
            raise _refused(f"the {engine.backend} engine runs on one rank only", "Use --tp 1")
    else:
        folder = _folder(engine)
        wrong = None
        if folder is not None and engine.ranks > 1:
            wrong = why_not(_config(folder).get, engine.ranks)
        if wrong is not None:
            raise _refused(*wrong)
    _ask_engine(engine)


def _ask_engine(engine: EngineOptions) -> None:
    """What a process of the engine's has against it; silent where that cannot say."""
    try:
        (line,) = answer(_MODULE, msgspec.json.encode(engine).decode())
        told = json.loads(line)
        why, hint = str(told["why"]), str(told["hint"])
    except (ValueError, LookupError, TypeError):
        return
    if why:
        raise _refused(why, hint)


def other_model(last: DaemonOptions | None, asked: Asked, options: DaemonOptions) -> str:
    """What to say where the last start's model went with its engine; else empty."""
    if last is None or asked.model is not None or last.engine.model == options.engine.model:
        return ""
    kept = f"the model {last.engine.model} was the {last.engine.backend} engine's and is not kept"
    return f"note: {kept}; --model names another"


def _folder(engine: EngineOptions) -> Path | None:
    """Where the model lies; None where it has to be fetched first, or is a single file."""
    name = engine.model
    if Path(name).is_absolute():
        return Path(name) if Path(name).is_dir() else None
    found = find_cached(name, engine.cache_dir)
    if found is not None or name == DEMO_NAME:
        return found
    cached = {model.name: model.path for model in cached_models(engine.cache_dir)}
    if name in cached:
        return cached[name]
    if "/" not in name:
        raise _refused(
            f"no model named {name} is here",
            "Use a folder, a .gguf file, OWNER/NAME of the hub, or one of llm-inspect models list",
        )
    return None


def _config(folder: Path) -> dict[str, object]:
    """The text part of its configuration. Raises InspectError (exit 3)."""
    try:
        found = parse_json(read_regular(folder / "config.json"))
    except (OSError, ValueError):
        raise _refused(
            f"{folder} has no config.json that can be read", "It is no model folder"
        ) from None
    text = found.get("text_config", found) if isinstance(found, dict) else {}
    return text if isinstance(text, dict) else {}


def _refused(message: str, hint: str) -> InspectError:
    return InspectError(message, hint, exit_code=Exit.MODEL, code="model")


# Going back -------------------------------------------------------------------------------------


def options_before(paths: Paths) -> DaemonOptions | None:
    """What the daemon ran with before a restart that failed; None when none did."""
    return _read(paths.before)


def last_options(paths: Paths) -> DaemonOptions | None:
    """What it last ran with."""
    return options_before(paths) or _read(paths.options)


def _read(path: Path) -> DaemonOptions | None:
    try:
        return DaemonOptions.read(path)
    except (OSError, msgspec.MsgspecError):
        return None


def keeps_options(error: InspectError, paths: Paths) -> InspectError:
    """The error of a restart that failed, which also says that nothing is lost."""
    before = options_before(paths)
    if before is not None:
        back = f"llm-inspect daemon start{name_option(paths.name)}"
        told = f"{back} goes back to {in_words(before.engine)}"
        error.hint = f"{error.hint.rstrip('.')}; {told}" if error.hint else told
    return error


def others_before(paths: Paths, asked: Asked, new: DaemonOptions) -> str | None:
    """The options of the last daemon, where a restart would have kept them and this start does not:
    as one would type them."""
    before = _read(paths.options)
    if before is None:
        return None
    try:
        again = asked.applied_to(before)
    except InspectError:  # what is asked for now does not go with them
        return None
    return typed(before) if typed(again) != typed(new) else None


def typed(options: DaemonOptions) -> str:
    """The options that count, for a shell: what is computed, where, and who may see it."""
    words = [in_words(options.engine)]
    for name in ("share", "share_control"):
        value = getattr(options, name)
        if value:
            words.append(_typed(name, value))
    return " ".join(words)


def in_words(engine: EngineOptions) -> str:
    """The part of it that is the engine's."""
    usual = EngineOptions()
    words = [_typed("engine", engine.backend), _typed("model", engine.model)]
    for name in ("revision", "tp", "device", "dtype", "max_context", "verify", "plain_engine"):
        value = getattr(engine, name)
        if value != getattr(usual, name):
            words.append(_typed(name, value))
    return " ".join(words)


def _typed(name: str, value: object) -> str:
    option = f"--{name.replace('_', '-')}"
    return option if value is True else f"{option} {shlex.quote(str(value))}"
