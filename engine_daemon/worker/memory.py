"""Memory of a device: how much can be had, who holds the rest, and whether an error means it ran
out.

Knows torch's devices and the tool that comes with NVIDIA's driver; no models and no sessions.
"""

import re
import subprocess
from typing import Final

import torch

from engine_daemon.sizes import sized
from engine_daemon.worker import host_memory
from engine_daemon.worker.forward_thread import ENOUGH_BYTES, of_onednn
from engine_daemon.worker.host_memory import ULIMIT, Holder, Present, holder

_SMI: Final = ("nvidia-smi", "--format=csv,noheader,nounits")
_SMI_PATIENCE_S: Final = 10.0
_NAMED: Final = 3
"""Holders that are named."""
_WORTH_NAMING: Final = 20
_LEAST_NAMED: Final = 100_000_000
"""One that holds less, or less than one part in so many of what is needed, is not."""
_SHORT: Final = ("can't allocate memory", "Cannot allocate memory", "out of memory", "os error 12")
_TRIED: Final = re.compile(r"tried to allocate ([\d.]+) ?(bytes|[KMGT]iB)", re.IGNORECASE)
_UNITS: Final = {"bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def present(device: torch.device) -> Present | None:
    """What this process can have of the device; None where nobody says."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return Present(int(torch.cuda.mem_get_info(device)[0]) + unused)
    return host_memory.present()


def free_bytes(device: torch.device) -> int | None:
    """The same in bytes."""
    found = present(device)
    return None if found is None else found.bytes


def told_present(device: torch.device, found: Present, need: int = 0) -> str:
    """`cuda:0 has 1.0 GB free, held by …`: who holds most of it, in so far as that matters for
    who needs `need` bytes."""
    have = f"{device} has {sized(found.bytes)} free"
    if found.limit == ULIMIT:  # of one process: what others hold does not count
        return f"{have} in {found.limit}"
    by = _on_gpu(device) if device.type == "cuda" else host_memory.holders()
    least = max(_LEAST_NAMED, need // _WORTH_NAMING)
    who = ", ".join(str(it) for it in by[:_NAMED] if it.bytes >= least)
    inside = f" in {found.limit}" if found.limit else ""
    return f"{have}{inside}{f', held by {who}' if who else ''}"


def glance(device: torch.device) -> Present | None:
    """As `present`, of a device that this process may have nothing to do with: asking CUDA itself
    would make a context there, of half a gigabyte, for good."""
    if device.type == "cuda":
        for gpu, free in _asked("--query-gpu=uuid,memory.free"):
            if free.isdecimal() and _uuid(device) in gpu:
                return Present(int(free) * 2**20)
    return present(device)


def _uuid(device: torch.device) -> str:
    """What its driver calls the device; a word that is in no name where torch does not say."""
    return str(getattr(torch.cuda.get_device_properties(device), "uuid", "unknown"))


def _asked(query: str) -> list[list[str]]:
    """What the driver's tool says, cells by line; nothing where there is none."""
    try:
        told = subprocess.run(
            [*_SMI, query], capture_output=True, text=True, timeout=_SMI_PATIENCE_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in line.split(",")] for line in told.splitlines()]


def _on_gpu(device: torch.device) -> list[Holder]:
    """Processes that compute on a GPU, as its driver tells; the largest first."""
    found = [
        holder(int(pid), int(used) * 2**20)
        for gpu, pid, used in _asked("--query-compute-apps=gpu_uuid,pid,used_gpu_memory")
        if pid.isdecimal() and used.isdecimal() and _uuid(device) in gpu
    ]
    return sorted(found, key=lambda it: it.bytes, reverse=True)


def is_short(error: BaseException) -> bool:
    """True when it means that memory did not suffice, whoever found out."""
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    if known or any(words in str(error) for words in _SHORT):
        return True
    left = host_memory.present() if of_onednn(error) else None
    return left is not None and left.bytes < ENOUGH_BYTES


def tried_bytes(error: BaseException) -> int | None:
    """What the allocation that failed asked for, where the error says it."""
    found = _TRIED.search(str(error))
    return None if found is None else int(float(found[1]) * _UNITS[found[2].lower()])


def told_short(error: BaseException, device: torch.device) -> str:
    """`2.1 GB more are needed and cuda:0 has 1.0 GB free, held by …`."""
    need, found = tried_bytes(error), present(device)
    more = "more memory is needed" if need is None else f"{sized(need)} more are needed"
    return f"{more} and {told_present(device, found, need or 0)}" if found is not None else more
