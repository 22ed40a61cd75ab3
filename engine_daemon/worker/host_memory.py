"""How much memory this machine can give, and which processes hold it.

Reads /proc and the limits of control groups; knows no devices beside the CPU, and no torch.
"""

import os
import pwd
import re
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine_daemon.characters import Visible, undecodable
from engine_daemon.outside import parse_json
from engine_daemon.paths import read_regular
from engine_daemon.sizes import sized

_NO_LIMIT: Final = 1 << 60
"""Control groups of version 1 write a number near 2^63 where there is no limit."""
_LONGEST_NAME: Final = 40
ULIMIT: Final = "ulimit -v"
_PROC: Final = Path("/proc")
_GROUPS: Final = Path("/sys/fs/cgroup")
_VISIBLE: Final = Visible()


@dataclass(frozen=True, slots=True)
class Present:
    """`bytes` that can be had; `limit` names what allows no more, empty when it is the machine."""

    bytes: int
    limit: str = ""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process and what it holds of a device. `name`: of a daemon its NAME, else its program."""

    pid: int
    user: str
    name: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.name} of {self.user} (pid {self.pid}) {sized(self.bytes)}"


def present(proc: Path = _PROC, groups: Path = _GROUPS) -> Present | None:
    """The least of what the machine, its control groups and `ulimit -v` let this process have;
    None where nobody says."""
    known = [found for found in (_machine(proc), _ulimit(proc)) if found is not None]
    known += (Present(size, "its control group") for size in _group_frees(proc, groups))
    return min(known, key=lambda it: it.bytes, default=None)


def _machine(proc: Path) -> Present | None:
    try:
        fields = _fields(proc / "meminfo")
        return Present(fields["MemAvailable"])
    except (OSError, KeyError, ValueError):
        return None


def _ulimit(proc: Path) -> Present | None:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        return Present(max(0, limit - _fields(proc / "self/status")["VmSize"]), ULIMIT)
    except (OSError, KeyError, ValueError):
        return None


def _fields(path: Path) -> dict[str, int]:
    """Bytes by name, of those lines of a file in /proc that count in kB."""
    lines = path.read_text("ascii", errors="replace").splitlines()
    pairs = (re.fullmatch(r"(\w+):\s+(\d+) kB", line) for line in lines)
    return {found[1]: int(found[2]) * 1024 for found in pairs if found}


def _group_frees(proc: Path, groups: Path) -> Iterator[int]:
    """What each control group that this process is in has left; page cache can be given up."""
    try:
        lines = (proc / "self/cgroup").read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if not kinds:
            for mount in (groups, groups / "unified"):
                yield from _frees(mount, path, "memory.max", "memory.current", "")
        elif "memory" in kinds.split(","):
            usage = "memory.usage_in_bytes"
            yield from _frees(groups / "memory", path, "memory.limit_in_bytes", usage, "total_")


def _frees(mount: Path, path: str, limit: str, usage: str, prefix: str) -> Iterator[int]:
    """Of a group and those above it. In a container its own group is where others are mounted."""
    inside = Path(path.lstrip("/"))
    for folder in (inside, *inside.parents):
        try:
            most = int((mount / folder / limit).read_text("ascii"))
            used = int((mount / folder / usage).read_text("ascii"))
            stat = (mount / folder / "memory.stat").read_text("ascii")
        except (OSError, ValueError):  # "max" is no number, and no limit
            continue
        if most < _NO_LIMIT:
            pages = dict(line.split(" ", 1) for line in stat.splitlines() if " " in line)
            cached = sum(int(pages.get(f"{prefix}{k}_file", 0)) for k in ("active", "inactive"))
            yield max(0, most - used + cached)


def holders(proc: Path = _PROC) -> list[Holder]:
    """Processes by what they hold that is no file's, the largest first; this one is none."""
    found = []
    for folder in proc.iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            size = _held(folder)
            if size:
                found.append(holder(int(folder.name), size, proc))
    return sorted(found, key=lambda it: it.bytes, reverse=True)


def _held(folder: Path) -> int:
    try:
        fields = _fields(folder / "status")
    except OSError:  # it has ended, or belongs to somebody who hides it
        return 0
    return fields.get("RssAnon", 0) + fields.get("RssShmem", 0)


def holder(pid: int, size: int, proc: Path = _PROC) -> Holder:
    """A process that holds `size` bytes somewhere. What cannot be seen of it is `?`."""
    folder = proc / str(pid)
    try:
        uid = folder.stat().st_uid
    except OSError:
        return Holder(pid, "?", "a process", size)
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return Holder(pid, user, _name(folder), size)


def _name(folder: Path) -> str:
    """`daemon NAME` of a process of ours, else the program, of an interpreter what it runs."""
    try:
        words = os.fsdecode((folder / "cmdline").read_bytes()).rstrip("\0").split("\0")
        comm = os.fsdecode((folder / "comm").read_bytes()).strip()
    except OSError:
        return "a process"
    if any(word.startswith("engine_daemon.") for word in words):
        return _shown(_daemon(words))
    name = os.path.basename(words[0]) or comm
    script = next((word for word in words[1:] if word and not word.startswith("-")), "")
    if name.startswith("python") and script:
        name = f"{name} {os.path.basename(script)}"
    return _shown(name)


def _daemon(words: list[str]) -> str:
    """The daemon that a worker's socket belongs to."""
    at = words.index("--socket") + 1 if "--socket" in words else 0
    folder = Path(words[at]).parent if 0 < at < len(words) else Path()
    try:
        return f"daemon {parse_json(read_regular(folder / 'conn.json'))['name']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a daemon"


def _shown(name: str) -> str:
    """Processes choose their own names: nothing of one reaches a terminal as it is."""
    mapped = undecodable(name).translate(_VISIBLE)
    return mapped if len(mapped) <= _LONGEST_NAME else mapped[: _LONGEST_NAME - 1] + "…"
