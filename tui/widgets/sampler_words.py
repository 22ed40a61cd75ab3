"""Words of the sampler as they stand on screen."""

from typing import Final

from engine_daemon import sampler_words as whole
from engine_daemon.protocol.values import DroppedBy, Sampler
from tui.text import SafeText

_SEED: Final = 8
"""Digits of a seed that are shown."""


def sampler_words(sampler: Sampler) -> SafeText:
    """The settings that matter, the seed cut."""
    return SafeText(whole.sampler_words(sampler, _SEED))


def filter_words(dropped_by: DroppedBy) -> str | None:
    """What took a candidate out, as it is written everywhere on screen; None: nothing did."""
    word = dropped_by.word
    return None if word is None else word.replace("_", "-")
