"""Where a model is put: one device a rank, and how much is free there.

Knows devices; loads nothing.
"""

from dataclasses import dataclass
from typing import NoReturn

import torch

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.memory import free_bytes, glance


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
    glances = {i: glance(torch.device("cuda", i)) for i in range(found)}
    free = {i: 0 if it is None else it.bytes for i, it in glances.items()}
    return sorted(free, key=lambda i: free[i], reverse=True)


def _refuse(message: str, hint: str) -> NoReturn:
    raise InspectError(message, hint, exit_code=Exit.MODEL, code="device")


def device_bytes(device: torch.device) -> tuple[int | None, int | None]:
    """Bytes this process takes on the device, and all there are; None where nobody counts."""
    if device.type != "cuda":
        return None, None
    total = torch.cuda.get_device_properties(device).total_memory
    return torch.cuda.memory_reserved(device), int(total)
