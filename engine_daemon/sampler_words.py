"""A sampler in a few words: `greedy`, or `T 0.8 top-p 0.9 seed 12345678…`.

Knows a sampler; nothing of sessions. What changes nothing is not said.
"""

from typing import Final

from engine_daemon.protocol.values import Sampler

_NEUTRAL: Final = Sampler()
_DRAW: Final = (("top_k", "top-k"), ("top_p", "top-p"), ("min_p", "min-p"))
_PENALTIES: Final = (
    ("repetition_penalty", "repetition"),
    ("presence_penalty", "presence"),
    ("frequency_penalty", "frequency"),
)


def sampler_words(sampler: Sampler, digits: int | None = None) -> str:
    """The settings that matter. `digits`: of the seed, the rest is cut; None = all."""
    words = ["greedy"] if sampler.is_greedy else [f"T {sampler.temperature:g}"]
    named = _PENALTIES if sampler.is_greedy else _DRAW + _PENALTIES
    for name, word in named:
        value = getattr(sampler, name)
        if value != getattr(_NEUTRAL, name):
            words.append(f"{word} {value:g}")
    if not sampler.is_greedy:
        seed = str(sampler.seed)
        words.append(
            f"seed {seed if digits is None or len(seed) <= digits else seed[:digits] + '…'}"
        )
    return " ".join(words)
