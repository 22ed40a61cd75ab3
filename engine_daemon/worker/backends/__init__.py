"""Engine backends: the registry that maps a name to its module, imported only when asked for."""

import importlib
from typing import Final, cast

from engine_daemon.errors import Exit, InspectError
from engine_daemon.worker.backends.base import Backend

BACKENDS: Final = {
    "hf": "engine_daemon.worker.backends.hf:HfBackend",
    "scripted": "engine_daemon.worker.backends.scripted:ScriptedBackend",
}
"""Name → `module:class`; a new backend is one file and one line here."""


def make_backend(name: str) -> Backend:
    """A backend by name, nothing loaded yet; InspectError when there is none or it lacks a part."""
    place = BACKENDS.get(name)
    if place is None:
        raise InspectError(
            f"there is no engine {name!r}",
            f"Engines are {', '.join(sorted(BACKENDS))}",
            exit_code=Exit.MODEL,
            code="bad_arg",
        )
    module, _, attribute = place.partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise InspectError(
            f"the {name} engine needs {error.name}, which is not installed",
            "Install the engine: pip install 'llm-inspect-tui[engine]'",
            exit_code=Exit.MODEL,
            code="not_installed",
        ) from error
    return cast("Backend", made())
