"""Does a model fit where it is to go, and if not, what would: asked before it is loaded.

Knows sizes and devices; reads no weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from engine_daemon.errors import Exit, InspectError
from engine_daemon.sizes import sized
from engine_daemon.worker.memory import free_bytes, glance, told_present
from engine_daemon.worker.placement import Place

_MOST_TOLD = 3


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes of the `weights`, which ranks share, and `beside` them on each: the smallest cache and
    what a chunk of a prompt computes with."""

    weights: int
    beside: int

    def each(self, ranks: int) -> int:
        """What a device needs of so many."""
        return self.weights // ranks + self.beside

    def on(self, place: Place) -> int:
        """What a device of `place` needs: ranks on the CPU share one memory."""
        if place.device.type == "cpu":
            return self.weights + self.beside * place.world
        return self.each(place.world)


def check_memory(
    dtype: str,
    needs: Mapping[str, Need],
    place: Place,
    divides: Callable[[int], bool] = lambda ranks: ranks == 1,
) -> None:
    """InspectError (exit 3) when a model does not fit in `place`.

    `needs` by dtype, `dtype` being the one it is to be loaded in; `divides` tells whether it can
    be shared out to so many ranks.
    """
    share = needs[dtype].on(place)
    devices = dict.fromkeys(place.devices)
    known = {device: found for device in devices if (found := glance(device)) is not None}
    short = [device for device, found in known.items() if found.bytes < share]
    if not short:
        return
    each = "" if len(devices) == 1 else " on each device"
    have = "; ".join(told_present(device, known[device], share) for device in short)
    weights = needs[dtype].weights // (1 if place.device.type == "cpu" else place.world)
    rest = sized(share - weights)
    raise InspectError(
        f"the model needs {sized(share)}{each} ({sized(weights)} weights in {dtype}, {rest}"
        f" smallest cache and scratch) and {have}",
        _hint(_fitting(dtype, needs, place, divides)),
        exit_code=Exit.MODEL,
        code="no_memory",
    )


def _hint(fits: Sequence[str]) -> str:
    if not fits:
        return "Nothing here would fit it: free some memory, or use a smaller model"
    return f"Would fit: {', or '.join(fits[:_MOST_TOLD])}"


def _fitting(
    dtype: str, needs: Mapping[str, Need], place: Place, divides: Callable[[int], bool]
) -> list[str]:
    """Options under which it would be loaded."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    free = {i: _glanced(torch.device("cuda", i)) for i in range(gpus)}
    host = free_bytes(torch.device("cpu")) or 0
    need, found = needs[dtype], []
    one = next((i for i in sorted(free, key=lambda i: -free[i]) if free[i] >= need.each(1)), None)
    if one is not None and (place.world > 1 or place.device != torch.device("cuda", one)):
        found.append(f"--device cuda:{one} ({sized(free[one])} free)")
    largest = sorted(free.values(), reverse=True)
    for ranks in range(2, gpus + 1):
        if ranks != place.world and divides(ranks) and largest[ranks - 1] >= need.each(ranks):
            found.append(f"--device cuda --tp {ranks} ({sized(need.each(ranks))} each)")
            break
    here = [_glanced(device) for device in place.devices]
    for other, smaller in needs.items():
        if smaller.weights < need.weights and min(here) >= smaller.on(place):
            found.append(f"--dtype {other} ({sized(smaller.on(place))})")
            break
    if place.device.type != "cpu" and host >= need.each(1):
        found.append(f"--device cpu --tp 1 ({sized(host)} free)")
    return found


def _glanced(device: torch.device) -> int:
    found = glance(device)
    return 0 if found is None else found.bytes
