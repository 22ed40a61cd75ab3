"""Made-up rows of logits for the scripted engine: few, peaked, and the same everywhere.

A row is chosen by a small hash of the last ids and the position and made when first needed.
Knows nothing of samplers.
"""

import math
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Final

from engine_daemon.protocol.synthetic import (
    BYTE_COUNT,
    EOS_ID,
    FIRST_SPECIAL_ID,
    FIRST_WORD_ID,
    VOCABULARY,
)
from engine_daemon.worker.reference_sampling import in_order, logsumexp
from engine_daemon.worker.script import Script

ROWS: Final = 128
_EOS_KEY: Final = ROWS
"""The row in which the end token comes first."""
_GRID: Final = 64
"""Logits are multiples of 1/64: exact in every float format, and ties occur."""
_BYTE, _SPECIAL, _END = -9.0, -14.0, -11.0
_PUNCTUATION: Final = {ord(","): 0.5, ord("."): 0.5, ord("\n"): -5.0}
_MASK_53: Final = (1 << 53) - 1


@dataclass(frozen=True, slots=True)
class Row:
    """Raw logits with what is the same under every sampler."""

    logits: list[float]
    order: list[int]
    logsumexp: float
    entropy_bits: float
    margin: float
    falling: "array[float]"
    mass: "array[float]"

    def rank(self, token_id: int) -> int:
        """1 + number of strictly greater logits."""
        return 1 + bisect_left(self.falling, -self.logits[token_id])

    def tail_prob(self, k: int) -> float:
        """Probability outside the first `k`."""
        return self.mass[k] if k < len(self.mass) else 0.0


class RowTable:
    """The rows of one script."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def key(self, tail: Sequence[int], position: int) -> int:
        """Which row follows these last ids at this position."""
        if position == self._script.eos_at:
            return _EOS_KEY
        mixed = position
        for token_id in tail:
            mixed = (mixed * 6_364_136_223_846_793_005 + token_id + 1) & _MASK_53
        return (mixed ^ (mixed >> 29)) % ROWS

    def row(self, key: int) -> Row:
        """Make the row of a key."""
        random = Random(f"{self._script.seed}/{key}")
        spread = random.uniform(2.0, 5.0)
        logits = [_logit(token_id, spread, random) for token_id in range(VOCABULARY)]
        if key == _EOS_KEY:
            logits[EOS_ID] = max(logits) + 4.0
        logits += [-math.inf] * (self._script.vocab - VOCABULARY)
        return _with_figures(logits)


def _logit(token_id: int, spread: float, random: Random) -> float:
    """Common words come first in the vocabulary and a little more often in the text; a wide
    `spread` makes a row that is sure of itself."""
    noise = random.gauss(0.0, 1.0)
    if token_id >= FIRST_WORD_ID:
        common = -0.35 * math.log(1 + token_id - FIRST_WORD_ID)
        return _on_grid(8.0 + common + spread * noise)
    if token_id >= FIRST_SPECIAL_ID:
        return _on_grid(8.0 + (_END if token_id == EOS_ID else _SPECIAL) + 0.3 * noise)
    assert token_id < BYTE_COUNT
    return _on_grid(8.0 + _PUNCTUATION.get(token_id, _BYTE) + 1.5 * noise)


def _on_grid(value: float) -> float:
    return round(value * _GRID) / _GRID


def _with_figures(logits: list[float]) -> Row:
    order = in_order(logits)
    total = logsumexp(logits)
    probs = [math.exp(logits[i] - total) for i in order]
    entropy = -math.fsum(p * (logits[i] - total) for p, i in zip(probs, order, strict=True) if p)
    behind = list(accumulate(reversed(probs), initial=0.0))
    return Row(
        logits=logits,
        order=order,
        logsumexp=total,
        entropy_bits=entropy / math.log(2),
        margin=probs[0] - probs[1],
        falling=array("d", (-logits[i] for i in order)),
        mass=array("d", behind[::-1]),
    )
