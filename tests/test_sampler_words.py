"""A sampler in a few words."""

import pytest

from engine_daemon.protocol.values import Sampler
from engine_daemon.sampler_words import sampler_words


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (Sampler(), "greedy"),
        (Sampler(greedy=False, temperature=0.0), "greedy"),
        (Sampler(repetition_penalty=1.2), "greedy repetition 1.2"),
        (Sampler(greedy=False, temperature=0.8, seed=7), "T 0.8 seed 7"),
        (
            Sampler(greedy=False, temperature=1.5, top_p=0.9, top_k=5, seed=123456789),
            "T 1.5 top-k 5 top-p 0.9 seed 12345678…",
        ),
    ],
)
def test_what_matters_is_said(sampler: Sampler, words: str) -> None:
    assert sampler_words(sampler, 8) == words
    assert sampler_words(sampler) == words.replace("…", "9")
