"""What the kernel allows: open files, memory of this machine and of the group it runs in."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from engine_daemon.doctor.row import Row, ok, warn
from engine_daemon.sizes import sized

FILES: Final = 1024
MEMORY: Final = 2_000_000_000
"""Less is too little for the smallest model with its engine."""


def look() -> Iterator[Row]:
    """Files, then memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        yield warn("open files", f"at most {hard}: few viewers can attach", "ulimit -Hn 4096")
    else:
        yield ok("open files", f"{soft}, at most {many}")
    yield from _memory()


def _memory() -> Iterator[Row]:
    free = available()
    limit = group_limit()
    if limit is not None and limit < MEMORY:
        yield warn(
            "memory",
            f"this login or container may use {sized(limit)} only (cgroup)",
            "Ask for more; a model that does not fit is ended by the kernel",
        )
    elif free is not None and free < MEMORY:
        yield warn("memory", f"{sized(free)} available", "End what is not needed")
    elif free is not None:
        group = "" if limit is None else f", this group may use {sized(limit)}"
        yield ok("memory", f"{sized(free)} available{group}")


def available(table: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that programs can have; None where the system does not tell."""
    try:
        lines = table.read_text("ascii").splitlines()
    except OSError:
        return None
    found = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return next((int(kibibytes) * 1024 for kibibytes in found), None)


def group_limit(
    own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """The least memory limit of the control groups this process is in; None = none."""
    limits = []
    try:
        lines = own.read_text("utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            top, file = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, file = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = Path(os.path.normpath(f"{top}/{path}"))
        for folder in (group, *group.parents):
            if folder.is_relative_to(top):
                limits += _number(folder / file)
    return min(limits, default=None)


def _number(path: Path) -> list[int]:
    try:
        text = path.read_text("ascii").strip()
    except (OSError, ValueError):
        return []
    # Version 1 writes "no limit" as a number of pages near 2^63.
    return [int(text)] if text.isdecimal() and int(text) < 2**60 else []
