"""Attention of one query over a long cache: query heads that share keys are read as one block.

On CPUs the library's own reads keys and values once for every query head. Registered with
transformers under `NAME`; anything but the plain case goes to the library's.
"""

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
