"""Linear layers of one row, their bf16 weights laid out once more, to be read as fast as memory is.

FBGEMM's product of fp32 rows and fp16 weights; oneDNN's reads weights from memory at two thirds of
the pace when there is one row. Knows weights; no modules, no models.
"""

import math
from collections.abc import Callable, Iterable, Sequence
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
        made = Streamed(lambda: [torch.ones(16, 16)], [None], scaled_bias=False)
        made.pack()
        return bool((made.compute(torch.ones(1, 16)) * made.shrink == 16.0).all())
    # A torch without the operator, a CPU without its kernel, a build that only declares it.
    except (AttributeError, RuntimeError):
        return False


Weights = Callable[[], Sequence[Tensor]]
Biases = Sequence[Tensor | None]


class Streamed:
    """Layers of the same input as one product; `pack` before the first `compute`. `given`: their
    weights, made anew at each call.

    A power of two, `shrink`, undoes the scaling: of the input, or, with `scaled_bias`, of the
    output. In fp16 a weight is exact down to 2^-40 of the largest.
    """

    def __init__(self, given: Weights, biases: Biases, *, scaled_bias: bool) -> None:
        self.shrink = 1.0
        self._given = given
        self._biases, self._scaled_bias = biases, scaled_bias
        self._packed: Any = None
        overload: Any = torch.ops.quantized.linear_dynamic_fp16.default
        # What the overload calls once it has looked for a Python implementation, which costs more
        # than the rest of the call.
        self._multiply = getattr(overload, "_op", overload)

    def pack(self) -> None:
        """Lay the weights out. Raises ValueError when one is not finite."""
        whole, grown = self._scaled()
        self.shrink = 1.0 / grown
        bias = _joined(self._biases, grown if self._scaled_bias else 1.0)
        self._packed = torch.ops.quantized.linear_prepack_fp16(whole, bias)

    def _scaled(self) -> tuple[Tensor, float]:
        """The given weights in fp32, one below the other, and what they were multiplied with."""
        whole = torch.cat([weight.float() for weight in self._given()])
        largest = float(whole.abs().max())
        if not math.isfinite(largest):
            raise ValueError("a weight that is not finite")
        grown = math.ldexp(1.0, _HIGHEST - math.frexp(largest)[1]) if largest else 1.0
        return whole.mul_(grown), grown

    def is_as_given(self) -> bool:
        """It computes with the weights that are given now."""
        packed: Tensor = torch.ops.quantized.linear_unpack_fp16(self._packed)[0]
        whole, grown = self._scaled()
        return torch.equal(whole.half().float(), packed) and self.shrink == 1.0 / grown

    def compute(self, given: Tensor) -> Tensor:
        """All parts side by side, fp32, of an fp32 input."""
        made: Tensor = self._multiply(given, self._packed)
        return made

    def weights(self) -> Tensor:
        """What is computed with, in fp32, the parts one below the other."""
        whole: Tensor = torch.ops.quantized.linear_unpack_fp16(self._packed)[0]
        return whole * self.shrink


def _joined(biases: Biases, factor: float) -> Tensor | None:
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
