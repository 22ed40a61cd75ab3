"""A sampler in a few words: `greedy`, or `T 0.8 top-p 0.9 seed 12345678…`.

Knows a sampler; nothing of sessions. What changes nothing is not said.
"""

from typing import Final

from engine_daemon.protocol.values import DroppedBy, Sampler
from tui.text import ELLIPSIS, SafeText

_SEED: Final = 8
"""Digits of a seed that are shown."""
_NEUTRAL: Final = Sampler()
_DRAW: Final = (("top_k", "top-k"), ("top_p", "top-p"), ("min_p", "min-p"))
_PENALTIES: Final = (
    ("repetition_penalty", "repetition"),
    ("presence_penalty", "presence"),
    ("frequency_penalty", "frequency"),
)


def sampler_words(sampler: Sampler) -> SafeText:
    """The settings that matter, the seed cut."""
    words = ["greedy"] if sampler.greedy else [f"T {sampler.temperature:g}"]
    named = _PENALTIES if sampler.greedy else _DRAW + _PENALTIES
    for name, word in named:
        value = getattr(sampler, name)
        if value != getattr(_NEUTRAL, name):
            words.append(f"{word} {value:g}")
    if not sampler.greedy:
        seed = str(sampler.seed)
        words.append(f"seed {seed[:_SEED] + ELLIPSIS if len(seed) > _SEED else seed}")
    return SafeText(" ".join(words))


def filter_words(dropped_by: DroppedBy) -> str | None:
    """What took a candidate out, as it is written everywhere on screen; None: nothing did."""
    word = dropped_by.word
    return None if word is None else word.replace("_", "-")
