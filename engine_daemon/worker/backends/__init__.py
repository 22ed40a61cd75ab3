"""Engine backends: the registry that maps a name to its modules, imported only when asked for."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, cast

from engine_daemon.errors import Exit, InspectError
from engine_daemon.installing import IN_A_CLONE
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.backends.base import Backend, ProgressFn


@dataclass(frozen=True, slots=True)
class Registered:
    """Where a backend is, as `module:name`, and the packages that it `needs`.

    `locate` looks for its model, and imports nothing that takes long: who mistyped a name knows at
    once, and the tokenizer is read beside the engine.
    """

    backend: str
    locate: str
    needs: tuple[str, ...] = ()


BACKENDS: Final = {
    "hf": Registered(
        backend="engine_daemon.worker.backends.hf:HfBackend",
        locate="engine_daemon.worker.models:locate",
        needs=("torch", "transformers"),
    ),
    "scripted": Registered(
        backend="engine_daemon.worker.backends.scripted:ScriptedBackend",
        locate="engine_daemon.worker.script:locate",
    ),
}
"""A new backend is one file and one entry here."""


def locate(options: EngineOptions, progress: ProgressFn) -> str:
    """Find, download or convert the model; the directory it lies in, or "" for a built-in one.

    Raises InspectError (exit 3), also when there is no such engine or a part of it is missing.
    """
    check_installed(options.backend)  # before anything is downloaded for it
    with _installed(options.backend):
        found: Path | str = _named(_registered(options.backend).locate)(options, progress)
    return str(found)


def check_installed(name: str) -> None:
    """InspectError (exit 3) where there is no such engine, or a package it needs is missing."""
    registered = _registered(name)
    with _installed(name):
        for package in registered.needs:
            if find_spec(package) is None:
                raise ModuleNotFoundError(name=package)


def make_backend(name: str) -> Backend:
    """A backend by name, nothing loaded yet; InspectError when there is none or it lacks a part."""
    place = _registered(name).backend
    with _installed(name):
        made = _named(place)
    return cast("Backend", made())


def _registered(name: str) -> Registered:
    if name not in BACKENDS:
        raise InspectError(
            f"there is no engine {name!r}",
            f"Engines are {', '.join(sorted(BACKENDS))}",
            exit_code=Exit.MODEL,
            code="bad_arg",
        )
    return BACKENDS[name]


def _named(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


@contextmanager
def _installed(name: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise InspectError(
            f"the {name} engine needs {error.name}, which is not installed",
            IN_A_CLONE,
            exit_code=Exit.MODEL,
            code="not_installed",
        ) from error
