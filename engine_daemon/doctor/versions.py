"""Python and the installed packages, by their metadata: nothing of them is imported."""

import importlib.metadata
import re
import shutil
import sys
from collections.abc import Iterator
from typing import Final

from engine_daemon import __version__
from engine_daemon.doctor.row import Row, fail, ok, warn
from engine_daemon.installing import IN_A_CLONE, INSTALL_ENGINE

DISTRIBUTION: Final = "llm-inspect-tui"
LEAST_PYTHON: Final = (3, 11)
_BASE: Final = ("textual", "pyzmq", "msgpack", "msgspec", "plotext", "lark", "regex")
_ENGINE: Final = ("torch", "transformers", "tokenizers", "safetensors", "gguf", "jinja2")
_NEEDS: Final = re.compile(r"([A-Za-z0-9._-]+)([^;]*)(;.*)?")
_BOUND: Final = re.compile(r"(==|>=|<)\s*([0-9.]+)")


def look() -> Iterator[Row]:
    """This program, its interpreter, what it is built from, and what an engine needs."""
    number = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= LEAST_PYTHON:
        yield ok("python", f"{number}, llm-inspect {__version__} at {sys.prefix}")
    else:
        yield fail(
            "python", f"{number} is too old", "Install llm-inspect under Python 3.11 or newer"
        )
    needs = requirements()
    yield from _packages("packages", _BASE, needs)
    yield from _engine(needs)
    if shutil.which("ssh"):
        yield ok("ssh", "attach ssh://HOST can be used")
    else:
        yield warn(
            "ssh", "there is none: attach ssh://HOST cannot work", "Install OpenSSH's client"
        )


def _packages(area: str, names: tuple[str, ...], needs: dict[str, str]) -> Iterator[Row]:
    found = {name: version_of(name) for name in names}
    for name, version in found.items():
        if version is None:
            yield fail(area, f"{name} is missing", "Install llm-inspect again: pip install .")
        elif not meets(version, needs.get(name, "")):
            yield warn(
                area,
                f"{name} {version}, made for {name}{needs[name]}",
                "Install the versions of constraints.txt: pip install -c constraints.txt .",
            )
    good = [f"{name} {version}" for name, version in found.items() if version is not None]
    yield ok(area, ", ".join(good))


def _engine(needs: dict[str, str]) -> Iterator[Row]:
    missing = [name for name in _ENGINE if version_of(name) is None]
    if len(missing) == len(_ENGINE) or "torch" in missing:
        yield warn(
            "engine",
            "not installed: this machine can watch and replay, not run a model",
            f"For models, in a clone: {INSTALL_ENGINE}",
        )
        return
    if missing:
        yield fail("engine", f"not whole: {', '.join(missing)} missing", IN_A_CLONE)
    have = tuple(name for name in _ENGINE if name not in missing)
    yield from _packages("engine", have, needs)


def engine_installed() -> bool:
    """There is a torch to ask about devices."""
    return version_of("torch") is not None


def version_of(name: str) -> str | None:
    """Of an installed package."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def requirements() -> dict[str, str]:
    """Package → its bounds, as this installation was made for; empty where that is not known."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found = (_NEEDS.fullmatch(line) for line in lines)
    return {one[1].lower(): one[2].strip() for one in found if one is not None}


def meets(version: str, bounds: str) -> bool:
    """A dotted version against `==`, `>=` and `<`; whatever else is written counts as met."""
    have = _numbers(version)
    for relation, wanted in _BOUND.findall(bounds):
        limit = _numbers(wanted)
        good = {"==": have == limit, ">=": have >= limit, "<": have < limit}[relation]
        if not good:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """`2.8.0+cpu` → (2, 8); zeros at the end count for nothing."""
    found = re.match(r"[0-9.]*", version)
    numbers = [int(part) for part in (found[0] if found else "").split(".") if part]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
