"""Where the ranks meet: torch's process group, and what each process is set to before it.

Everything stays on this machine: the meeting point is a file, and connections are on loopback.
"""

import os
import socket
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist

from engine_daemon.worker.placement import Place

_MEETING: Final = timedelta(minutes=10)
"""How long the first meeting may take: ranks import and start at different speeds."""
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def meet(place: Place, store: str, timeout_s: float) -> None:
    """Join the group of all ranks; returns when all are there.

    `timeout_s`: how long a collective may take from then on. RuntimeError when they do not meet.
    """
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = loopback
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(place.rank), str(place.world)
    on_gpu = place.device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(place.device)
        # transformers binds each rank to the device of this number.
        os.environ["LOCAL_RANK"] = str(place.device.index)
    else:
        # Else transformers would put the parts on a GPU that is there as well.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ["LOCAL_RANK"] = str(place.rank)
        share_threads(place.world)
    meeting = dist.FileStore(store, place.world)  # type: ignore[attr-defined]  # not in __all__
    meeting.set_timeout(_MEETING)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        store=meeting,
        rank=place.rank,
        world_size=place.world,
        timeout=timedelta(seconds=timeout_s),
        device_id=place.device if on_gpu else None,
    )


def share_threads(ranks: int) -> None:
    """Each rank computes with its share of the cores, unless the user has set how many threads."""
    if not any(name in os.environ for name in _THREADS):
        torch.set_num_threads(max(1, torch.get_num_threads() // ranks))
