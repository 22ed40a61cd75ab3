"""From the name of a model to the folder it lies in: first hit wins (CONTRACT section 1).

Knows the order of places; each place has a file of its own. Imports nothing heavy by itself.
"""

import difflib
from pathlib import Path
from typing import NoReturn

from engine_daemon.errors import InspectError
from engine_daemon.model_store import DEMO_NAME, MANIFEST, cached_models, find_cached
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker import hub_model
from engine_daemon.worker.backends.base import ProgressFn
from engine_daemon.worker.checkpoint import check_folder, refuse
from engine_daemon.worker.convert import convert_file
from engine_daemon.worker.demo_model import demo_folder


def locate(options: EngineOptions, progress: ProgressFn) -> Path:
    """The folder of `options.model`, checked; downloaded or converted when it has to be.

    Raises InspectError (exit 3) with what to do instead.
    """
    folder = _find(options, progress).resolve()
    check_folder(folder)
    return folder


def display_name(model: str) -> str:
    """What a model is called on screen: its name, or the last part of its path."""
    path = Path(model)
    if model.endswith(".gguf"):
        return path.stem
    return path.name if _is_path(model) or path.is_dir() else model


def lies_here(options: EngineOptions) -> Path | None:
    """The folder of the model, where it needs no download and no conversion; None where it does.

    Raises InspectError (exit 3) for what is neither a model of this machine nor one to fetch.
    """
    name = options.model
    path = Path(name).expanduser()
    if name and path.is_dir():
        return path
    if name.endswith(".gguf"):
        if path.is_file():
            return None
        refuse(f"there is no file {path}", "Check the path of the .gguf file")
    if _is_path(name):
        file = path.exists()
        what = f"{path} is a file, no model" if file else f"there is no folder {path}"
        refuse(what, "Give its folder, or a .gguf file" if file else "Check the path of the model")
    if name == DEMO_NAME:  # what is in the cache may be made anew
        return None
    cached = find_cached(name, options.cache_dir)
    if cached is None and not hub_model.NAME.fullmatch(name):
        _unknown(name, options.cache_dir)
    return cached


def _find(options: EngineOptions, progress: ProgressFn) -> Path:
    name = options.model
    here = lies_here(options)
    if here is not None:
        return here
    if name.endswith(".gguf"):
        return convert_file(Path(name).expanduser().resolve(), options.cache_dir, progress)
    if name == DEMO_NAME:
        return _demo(options.cache_dir, progress)
    return hub_model.hub_model(name, options.revision, progress)


def _demo(cache_dir: str, progress: ProgressFn) -> Path:
    """The demo model; a copy in the cache that got damaged is made anew."""
    folder = demo_folder(cache_dir, progress)
    try:
        check_folder(folder)
    except InspectError:
        (folder / MANIFEST).unlink()
        return demo_folder(cache_dir, progress)
    return folder


def _is_path(name: str) -> bool:
    return name.startswith(("/", "./", "../", "~")) or name in (".", "..")


def _unknown(name: str, cache_dir: str) -> NoReturn:
    known = [DEMO_NAME, *(model.name for model in cached_models(cache_dir))]
    short = {known_name.rpartition("/")[2].lower(): known_name for known_name in known}
    near = difflib.get_close_matches(name.lower(), short, n=1, cutoff=0.6)
    refuse(
        f"there is no model called {name!r}",
        f"Did you mean {short[near[0]]}?"
        if near
        else f"Give a folder, a .gguf file, owner/name of the Hugging Face hub, or {DEMO_NAME}",
    )
