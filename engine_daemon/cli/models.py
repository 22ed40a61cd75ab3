"""`models list`: what lies in the cache and loads without network, and what fits here now."""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from engine_daemon.cli.engine_process import answer
from engine_daemon.cli.options import Given
from engine_daemon.cli.output import tell, write_out
from engine_daemon.cli.table import table
from engine_daemon.cli.target import target_of
from engine_daemon.model_store import DEMO_NAME, CachedModel, cached_models
from engine_daemon.sizes import sized

_MODULE: Final = "engine_daemon.worker.fits"
_ASKING: Final = "…"


def main(given: Given) -> int:
    """`models list`."""
    models = cached_models(target_of(given).paths.cache)
    shown = 0 if given.json else _show_first(models)
    reasons = _reasons(models)
    if given.json:
        for model, why in zip(models, reasons, strict=True):
            row = {"name": model.name, "path": str(model.path), "bytes": model.bytes}
            fits = None if why is None else not why
            tell(msgspec.json.encode({**row, "fits": fits, "why": why or ""}).decode())
    elif models:
        if shown:
            write_out(f"\x1b[{shown}A\x1b[J")
        tell(_table(models, [_word(why) for why in reasons]))
        for model, why in zip(models, reasons, strict=True):
            if why:
                tell(f"{model.name}: {why}")
    else:
        tell(f"no model is cached yet; {DEMO_NAME} is fetched when it is first used")
    return 0


def _show_first(models: Sequence[CachedModel]) -> int:
    """On a terminal that has room for it, the list before the engine is asked, which takes some
    seconds: torch is imported for it. How many lines are to be replaced then."""
    lines = _table(models, [_ASKING] * len(models)).splitlines()
    room = shutil.get_terminal_size()
    clever = sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
    fits = len(lines) < room.lines and all(len(line) < room.columns for line in lines)
    if not (models and clever and fits):
        return 0
    tell("\n".join(lines))
    return len(lines)


def _table(models: Sequence[CachedModel], fits: Sequence[str]) -> str:
    rows = [
        (m.name, sized(m.bytes), word, str(m.path)) for m, word in zip(models, fits, strict=True)
    ]
    return table(("MODEL", "SIZE", "FITS", "PATH"), rows)


def _word(why: str | None) -> str:
    return "-" if why is None else "no" if why else "yes"


def _reasons(models: Sequence[CachedModel]) -> list[str | None]:
    """Why each would not be loaded now, empty where it would be; None where nobody can say, as
    without the engine."""
    unknown: list[str | None] = [None] * len(models)
    if not models:
        return unknown
    try:
        lines = answer(_MODULE, *(str(m.path.absolute()) for m in models))
        told: list[str | None] = [json.loads(line)["why"] for line in lines]
    except ValueError:
        return unknown
    return told if len(told) == len(models) else unknown
