"""Checkpoints in fine-grained FP8: blocks of a weight with a scale each, and what becomes of them.

Knows safetensors headers, quantisation settings and whether there are kernels; loads no model.
"""

import logging
import math
from typing import Any, Final

import torch

from engine_daemon.outside import parse_json
from engine_daemon.worker.checkpoint import Checkpoint, refuse

_SCALE: Final = "weight_scale_inv"
_COLUMNS_FIRST: Final = ("o_proj", "down_proj")
"""Layers of which a rank holds some columns of the weight; of all others, some rows."""

_log: Final = logging.getLogger(__name__)

Shapes = dict[str, tuple[str, list[int]]]
"""Tensor name → dtype as safetensors names it, and shape."""


def stored_fp8(config: dict[str, Any]) -> tuple[int, int] | None:
    """The block size of a checkpoint in fine-grained FP8, from its config.json; None otherwise."""
    settings = config.get("quantization_config")
    if not isinstance(settings, dict) or settings.get("quant_method") != "fp8":
        return None
    size = settings.get("weight_block_size")
    if not isinstance(size, list | tuple) or len(size) != 2:
        return None
    return int(size[0]), int(size[1])


def shapes_in(checkpoint: Checkpoint) -> Shapes:
    """Every tensor of the weights files."""
    found: Shapes = {}
    for shard in checkpoint.shards:
        header = parse_json(shard.raw)
        header.pop("__metadata__", None)
        found |= {name: (entry["dtype"], entry["shape"]) for name, entry in header.items()}
    return found


def check_blocks(shapes: Shapes, block: tuple[int, int], ranks: int) -> None:
    """InspectError (exit 3) when a weight, or a rank's part of it, is no whole number of blocks:
    the scales would then be taken for blocks of another size."""
    for name, (_, scales) in shapes.items():
        if not name.endswith(_SCALE) or len(scales) != 2 or name.startswith("mtp."):
            continue
        weight = name.removesuffix("_scale_inv")
        shape = shapes.get(weight, ("", []))[1]
        columns = weight.split(".")[-2] in _COLUMNS_FIRST and "linear_attn" not in weight
        shares = (1, ranks) if columns else (ranks, 1)
        for size, share, width, found in zip(shape, shares, block, scales, strict=False):
            if size % (share * width) or found * width != size:
                refuse(
                    f"{weight} of {'x'.join(map(str, shape))} is no whole number of blocks of "
                    f"{block[0]}x{block[1]} for each of {ranks} ranks",
                    "Use fewer ranks" if ranks > 1 else "Get the checkpoint again",
                )


def dequantised_bytes(shapes: Shapes, itemsize: int) -> int:
    """Bytes of all weights once each number takes `itemsize`; scales are gone then."""
    kept = (shape for name, (_, shape) in shapes.items() if not name.endswith(_SCALE))
    return itemsize * sum(math.prod(shape) for shape in kept)


def why_dequantise(device: torch.device, dtype: str) -> str:
    """Why FP8 weights cannot stay what they are on `device`, `dtype` being the one asked for; empty
    when they can."""
    if device.type != "cuda" or not _kernels():
        return f"no FP8 kernels for {device.type}"
    return "fp32 was asked for" if dtype == "fp32" else ""


def _kernels() -> bool:
    from transformers.integrations.finegrained_fp8 import load_finegrained_fp8_kernel

    try:
        load_finegrained_fp8_kernel()
    except Exception as error:  # noqa: BLE001  whatever a missing or unfit kernel raises
        _log.info("FP8 kernels: %s", error)
        return False
    return True


def dequantised(checkpoint: Checkpoint, model: Any) -> bool:
    """True when the checkpoint is in FP8 and the loaded model has none of it left."""
    if stored_fp8(checkpoint.config) is None:
        return False
    return all(parameter.dtype.itemsize > 1 for parameter in model.parameters())
