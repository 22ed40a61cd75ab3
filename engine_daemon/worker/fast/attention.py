"""Attention of one query over a long cache: query heads that share keys are read as one block.

On CPUs the library's own reads keys and values once for every query head. `attention` is registered
with transformers under `NAME`; anything but the plain case goes to the library's. `over_buffers` is
for who holds whole buffers.
"""

import math
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME: Final = "llm_inspect"
_CHANGING: Final = ("softcap", "position_bias", "s_aux", "output_attentions")
"""Arguments that make it another function."""
_LONG: Final = 1024
"""Used positions from which two products over the whole buffers are faster in bf16."""
_LONG_UNSHARED: Final = 128
"""The same where no query heads share keys."""
_WASTE: Final = 1.25
"""They read what is not used, too: at most so many times what is."""


def register() -> None:
    """Make it known to transformers."""
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """As `sdpa_attention_forward`."""
    batch, heads, length, _ = query.shape
    plain = length == 1 and batch == 1 and attention_mask is None and not dropout
    if not plain or any(kwargs.get(name) is not None for name in _CHANGING):
        made: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **kwargs
        )
        return made
    return one_query(query, key, value, scaling).view(1, 1, heads, -1), None


def one_query(query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
    """`[1, groups, heads a group, dim]` of one query: the heads of a group go as its positions."""
    folded = query.view(1, key.shape[1], -1, query.shape[-1])
    return functional.scaled_dot_product_attention(folded, key, value, scale=scaling)


def over_buffers(query: Tensor, keys: Tensor, values: Tensor, used: int, scaling: float) -> Tensor:
    """`one_query` over the first `used` positions of `[1, groups, capacity, dim]` buffers, whose
    values hold finite numbers beyond them."""
    capacity = keys.shape[2]
    shared = query.shape[2] > 1
    least, waste = (_LONG, _WASTE) if shared else (_LONG_UNSHARED, 2 * _WASTE)
    if keys.dtype is not torch.bfloat16 or used < least or capacity > waste * used:
        return functional.scaled_dot_product_attention(
            query, keys.narrow(2, 0, used), values.narrow(2, 0, used), scale=scaling
        )
    # Slices of the used length would be copied: oneDNN's products want batches without gaps.
    scores = torch.bmm(query[0] * scaling, keys[0].transpose(1, 2))
    if used < capacity:
        scores.narrow(2, used, capacity - used).fill_(-math.inf)
    return torch.bmm(scores.softmax(-1), values[0])
