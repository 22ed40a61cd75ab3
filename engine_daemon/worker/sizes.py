"""Bytes by formula, from a model's text configuration: what its caches and forwards take.

Estimates for who asks before anything is there; what is there is counted from its tensors.
"""

from collections.abc import Sequence
from typing import Any, Final

from engine_daemon.protocol.commands import CHUNK
from engine_daemon.worker.caches import SMALLEST_CAPACITY

_HIDDEN: Final = 8
_UNITS: Final = 4
_ROW_COPIES: Final = 3
"""Tensors of one layer's width, between its layers and of its heads that a forward holds at once;
copies of a row of logits in fp32."""
_LINEAR_COPIES: Final = 18
"""Tensors in fp32, as wide as keys or values, that linear attention over a whole chunk holds."""
_SLICE_BYTES: Final = 64 * 2**20
"""What scoring a prompt copies to fp32 at a time."""


def position_bytes(config: Any, kinds: Sequence[str], itemsize: int) -> int:
    """Keys and values of one position in the layers that grow."""
    heads, size = _heads(config)
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    return kinds.count("full_attention") * 2 * kv_heads * size * itemsize


def bounded_bytes(config: Any, kinds: Sequence[str], itemsize: int) -> int:
    """Recurrent (fp32) and convolution states, and full sliding windows."""
    keys, values = _linear_widths(config)
    key_size = getattr(config, "linear_key_head_dim", None) or 0
    convolution = (2 * keys + values) * (getattr(config, "linear_conv_kernel_dim", None) or 0)
    states = kinds.count("linear_attention") * (4 * values * key_size + itemsize * convolution)
    window = getattr(config, "sliding_window", None) or 0
    sliding = kinds.count("sliding_attention")
    return states + window * position_bytes(config, ["full_attention"] * sliding, itemsize)


def smallest_cache(config: Any, kinds: Sequence[str], itemsize: int) -> int:
    """What the first forward of a session allocates for good."""
    growing = position_bytes(config, kinds, itemsize)
    return SMALLEST_CAPACITY * growing + bounded_bytes(config, kinds, itemsize)


def scratch_bytes(config: Any, itemsize: int, positions: int, rows: int) -> int:
    """What a forward over `positions` computes with, and `rows` rows of logits it leaves."""
    heads, size = _heads(config)
    experts = getattr(config, "num_experts_per_tok", None) or 0
    units = (getattr(config, "moe_intermediate_size", None) or 0) * experts
    width = max(config.hidden_size, heads * size) * _HIDDEN
    width += max(getattr(config, "intermediate_size", None) or 0, units) * _UNITS
    linear = 4 * _LINEAR_COPIES * max(_linear_widths(config))
    window = getattr(config, "sliding_window", None)
    mask = positions * positions if window and positions > window else 0
    logits = rows * config.vocab_size * itemsize + min(_SLICE_BYTES, 8 * rows * config.vocab_size)
    return int(positions * (itemsize * width + linear) + mask + logits)


def beside_weights(config: Any, kinds: Sequence[str], itemsize: int) -> int:
    """The least that a session needs beside the weights: a cache, a chunk, rows of logits."""
    rows = 4 * _ROW_COPIES * config.vocab_size
    cache = smallest_cache(config, kinds, itemsize)
    return int(cache + scratch_bytes(config, itemsize, CHUNK, 1) + rows)


def extra_scratch(config: Any, itemsize: int, positions: int, rows: int) -> int:
    """What a forward takes beyond one of a chunk, for which there is always room."""
    whole = scratch_bytes(config, itemsize, positions, rows)
    return max(0, whole - scratch_bytes(config, itemsize, CHUNK, 1))


def _heads(config: Any) -> tuple[int, int]:
    """How many attention heads, and their size; of a model without any 1, and its width."""
    heads = getattr(config, "num_attention_heads", None) or 1
    return heads, getattr(config, "head_dim", None) or config.hidden_size // heads


def _linear_widths(config: Any) -> tuple[int, int]:
    keys, values = (
        (getattr(config, f"linear_num_{what}_heads", None) or 0)
        * (getattr(config, f"linear_{what}_head_dim", None) or 0)
        for what in ("key", "value")
    )
    return keys, values
