"""Linear layers of one row, their bf16 weights laid out once more, to be read as fast as memory is.

FBGEMM's product of fp32 rows and fp16 weights; oneDNN's reads weights from memory at two thirds of
the pace when there is one row. Knows weights; no modules, no models.
"""

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import torch
from torch import Tensor

_HIGHEST: Final = 15
"""Weights are scaled to below 2 to this power; fp16 ends just above."""
MOST_BYTES_A_THREAD: Final = 512 << 20
"""Weights that are laid out, at 300 MB/s a thread."""


def supported() -> bool:
    """True when this torch on this CPU has the product."""
    try:
        made = Streamed([torch.ones(16, 16)], [None], scaled_bias=False)
        made.pack()
        return bool((made.compute(torch.ones(1, 16)) * made.shrink == 16.0).all())
    except (AttributeError, RuntimeError, NotImplementedError):
        return False


class Streamed:
    """Layers of the same input as one product; `pack` before the first `compute`.

    A power of two, `shrink`, undoes the scaling: of the input, or, with `scaled_bias`, of the
    output. In fp16 a weight is exact down to 2^-40 of the largest.
    """

    def __init__(
        self, weights: Sequence[Tensor], biases: Sequence[Tensor | None], *, scaled_bias: bool
    ) -> None:
        largest = max(float(weight.abs().max()) for weight in weights)
        if not math.isfinite(largest):
            raise ValueError("a weight that is not finite")
        grown = math.ldexp(1.0, _HIGHEST - math.frexp(largest)[1]) if largest else 1.0
        self.shrink = 1.0 / grown
        self.bytes = sum(weight.nbytes for weight in weights)
        self._weights: Sequence[Tensor] = weights
        self._bias = _joined(biases, grown if scaled_bias else 1.0)
        self._grown = grown
        self._packed: Any = None
        overload: Any = torch.ops.quantized.linear_dynamic_fp16.default
        # What the overload calls once it has looked for a Python implementation, which costs more
        # than the rest of the call.
        self._multiply = getattr(overload, "_op", overload)

    def pack(self) -> None:
        """Lay the weights out; the given ones are let go."""
        self._packed = torch.ops.quantized.linear_prepack_fp16(self._scaled(), self._bias)
        self._weights = ()

    def _scaled(self) -> Tensor:
        return torch.cat([weight.float() for weight in self._weights]).mul_(self._grown)

    def is_packed_in(self, other: "Streamed") -> bool:
        """`other`, which is packed, computes with the weights this one, which is not, was given."""
        packed: Tensor = torch.ops.quantized.linear_unpack_fp16(other._packed)[0]
        return torch.equal(self._scaled().half().float(), packed) and self.shrink == other.shrink

    def compute(self, given: Tensor) -> Tensor:
        """All parts side by side, fp32, of an fp32 input."""
        made: Tensor = self._multiply(given, self._packed)
        return made

    def weights(self) -> Tensor:
        """What is computed with, in fp32, the parts one below the other."""
        whole: Tensor = torch.ops.quantized.linear_unpack_fp16(self._packed)[0]
        return whole * self.shrink


def _joined(biases: Sequence[Tensor | None], factor: float) -> Tensor | None:
    found = [bias.float() for bias in biases if bias is not None]
    return torch.cat(found).mul_(factor) if found else None


def pack_all(products: Iterable[Streamed]) -> None:
    """Pack them on all threads: the library lays weights out on one."""
    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        list(threads.map(Streamed.pack, products))


def affordable(weights_bytes: int, free_bytes: int | None) -> bool:
    """True when laying out so much takes seconds, and a quarter of the free memory at most."""
    fits = free_bytes is None or 4 * weights_bytes <= free_bytes
    return fits and weights_bytes <= MOST_BYTES_A_THREAD * torch.get_num_threads()
