"""Where a model is put: one device a rank, how much is free there, and what is refused for it.

Knows devices and sizes of a checkpoint; loads nothing.
"""

from dataclasses import dataclass
from typing import NoReturn

import torch

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.worker import EngineOptions


@dataclass(frozen=True, slots=True)
class Place:
    """The devices of all ranks, in order of rank, and which of the ranks this process is."""

    devices: tuple[torch.device, ...]
    rank: int = 0

    @property
    def device(self) -> torch.device:
        """Of this rank."""
        return self.devices[self.rank]

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return len(self.devices)

    def __str__(self) -> str:
        """`cpu`, `cuda:0`, `cuda:0,2`."""
        if self.device.type == "cpu":
            return "cpu"
        return f"{self.device.type}:{','.join(str(d.index) for d in self.devices)}"

    def free_bytes(self) -> int | None:
        """What this rank can have: ranks on the CPU share what is free."""
        free = free_bytes(self.device)
        return free // self.world if free is not None and self.device.type == "cpu" else free


def choose_place(options: EngineOptions) -> Place:
    """The devices of `--device` and `--tp`; `auto` takes the GPUs with most free memory, the CPU
    where there is none. Raises InspectError (exit 3)."""
    kind, _, named = options.device.partition(":")
    ranks = options.ranks
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (kind == "cpu" and not named) or (kind == "auto" and not found):
        return Place((torch.device("cpu"),) * ranks)
    if kind not in ("auto", "cuda") or not all(x.isdecimal() for x in named.split(",") if named):
        _refuse(f"{options.device!r} is no device", "Use auto, cpu, cuda, cuda:N or cuda:N,M")
    if not found:
        _refuse("this torch sees no CUDA device", "Use --device cpu, or install CUDA torch")
    numbers = [int(x) for x in named.split(",") if x] or _most_free(found)[:ranks]
    missing = [x for x in numbers if x >= found]
    if missing:
        _refuse(f"there is no cuda:{missing[0]}", f"Devices: cuda:0 to cuda:{found - 1}")
    if len(numbers) < ranks:
        _refuse(
            f"{ranks} ranks need {ranks} devices, there are {found}",
            f"Use --tp {found} or less, or --device cpu",
        )
    return Place(tuple(torch.device("cuda", x) for x in numbers))


def _most_free(found: int) -> list[int]:
    return sorted(range(found), key=lambda i: torch.cuda.mem_get_info(i)[0], reverse=True)


def _refuse(message: str, hint: str) -> NoReturn:
    raise InspectError(message, hint, exit_code=Exit.MODEL, code="device")


def check_memory(need: int, place: Place) -> None:
    """InspectError (exit 3) when `need` bytes, shared out to the ranks, do not fit."""
    if place.device.type == "cpu":
        frees, share = {"cpu": free_bytes(place.device)}, need
    else:
        frees = {str(device): free_bytes(device) for device in place.devices}
        share = need // place.world
    known = {name: free for name, free in frees.items() if free is not None}
    if all(share <= free for free in known.values()):
        return
    each = "" if place.world == 1 or place.device.type == "cpu" else " on each device"
    have = ", ".join(f"{name} has {free / 1e9:.1f} GB free" for name, free in known.items())
    raise InspectError(
        f"the model needs {share / 1e9:.1f} GB{each} and {have}",
        "Use another device, a smaller --dtype or a smaller model",
        exit_code=Exit.MODEL,
        code="no_memory",
    )


def free_bytes(device: torch.device) -> int | None:
    """Memory that can be had on the device; None where nobody says."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def device_bytes(device: torch.device) -> tuple[int | None, int | None]:
    """Bytes this process takes on the device, and all there are; None where nobody counts."""
    if device.type != "cuda":
        return None, None
    total = torch.cuda.get_device_properties(device).total_memory
    return torch.cuda.memory_reserved(device), int(total)
