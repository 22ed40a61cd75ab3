"""What a model could run on: asked of torch in a process of its own, and of `nvidia-smi`."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

from engine_daemon.doctor.row import Row, fail, ok, warn
from engine_daemon.doctor.versions import engine_installed
from engine_daemon.installing import IN_A_CLONE
from engine_daemon.outside import parse_json
from engine_daemon.sizes import sized

TORCH_S: Final = 120.0
"""A first import of torch from a slow disk takes long."""
SMI_S: Final = 20.0
_FULL: Final = 0.1
"""With less free than this share of its memory a device is as good as taken."""
_QUERY: Final = "--query-gpu=index,name,memory.total,memory.free"


def look() -> Iterator[Row]:
    """Devices as the driver sees them, then as torch does."""
    cards = list(_cards())
    yield from cards
    if engine_installed():
        yield from _torch(any(card.area.startswith("gpu") for card in cards))


def _cards() -> Iterator[Row]:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return
    try:
        done = subprocess.run(
            [smi, _QUERY, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=SMI_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield warn("nvidia-smi", f"does not answer: {error}", "See whether the driver is loaded")
        return
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        why = said[0] if said else f"exit {done.returncode}"
        yield warn("nvidia-smi", why, "See whether the driver is loaded")
        return
    for line in done.stdout.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 4 and parts[2].isdecimal() and parts[3].isdecimal():
            yield _card(parts[0], parts[1], int(parts[2]) * 2**20, int(parts[3]) * 2**20)


def _card(index: str, name: str, total: int, free: int) -> Row:
    area, says = f"gpu {index}", f"{name}, {sized(free)} of {sized(total)} free"
    if free < total * _FULL:
        return warn(area, says, "nvidia-smi says who holds it")
    return ok(area, says)


def _torch(cards: bool) -> Iterator[Row]:
    """torch is imported by a child: a broken one must not take this process along."""
    words = [sys.executable, "-P", "-m", "engine_daemon.worker.devices"]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=TORCH_S, cwd="/", check=False
        )
    except subprocess.TimeoutExpired:
        yield fail("torch", f"its import took over {TORCH_S:.0f} s", "Is the disk it lies on slow?")
        return
    if done.returncode:
        said = done.stderr.strip().splitlines()
        why = said[-1] if said else f"exit {done.returncode}"
        yield fail("torch", f"cannot be imported: {why}", IN_A_CLONE)
        return
    found: dict[str, Any] = parse_json(done.stdout.splitlines()[-1])
    if not found["cuda"]:
        threads = f"{found['threads']} of {os.cpu_count()} cores"
        says = f"{found['torch']}: CPU only, {threads}"
        if cards:
            yield warn(
                "torch",
                f"{says}, though there are GPUs: {found['why'] or 'it was built without CUDA'}",
                "Install a torch with CUDA that fits the driver: pytorch.org",
            )
        else:
            yield ok("torch", says)
    for device in found["cuda"]:
        free = f"{sized(device['free'])} of {sized(device['total'])} free"
        yield ok(f"cuda:{device['index']}", f"{device['name']}, {free}, torch {found['torch']}")
