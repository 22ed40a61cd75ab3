"""How likely given tokens were under rows of logits: raw log-probability and rank.

Works through the rows in slices, so that the fp32 copy stays small. Knows no model.
"""

import math
from typing import Final

import torch
from torch import Tensor

from engine_daemon.errors import Exit, InspectError

_SLICE_BYTES: Final = 32 * 2**20
"""Of fp32 logits at a time."""


def score_rows(rows: Tensor, targets: list[int]) -> tuple[list[float], list[int]]:
    """Log-probability and rank (1 + strictly greater) of `targets[i]` in row i of `rows`.

    InspectError (`engine`) when a row holds NaN or +inf.
    """
    logprobs: list[float] = []
    ranks: list[int] = []
    step = max(1, _SLICE_BYTES // max(1, 4 * rows.shape[-1]))
    with torch.inference_mode():
        for begin in range(0, len(targets), step):
            wanted = torch.tensor(targets[begin : begin + step], device=rows.device)
            part = rows[begin : begin + len(wanted)].float()
            own = part.gather(1, wanted[:, None])
            logprobs += (own[:, 0] - part.logsumexp(1)).tolist()
            ranks += (1 + (part > own).sum(1)).tolist()
    if any(math.isnan(x) for x in logprobs):
        raise InspectError(
            "the model produced a NaN or infinite logit while it read the prompt",
            "The weights may be damaged; fp16 overflows where bf16 does not (--dtype)",
            exit_code=Exit.ENGINE,
            code="engine",
        )
    return logprobs, ranks
