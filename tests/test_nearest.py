"""Distances between words, and what they suggest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.nearest import edits, near, nearest, suggestion


@pytest.mark.parametrize(
    ("a", "b", "count"),
    [("", "", 0), ("run", "run", 0), ("rnu", "run", 2), ("stpe", "step", 2), ("a", "", 1)],
)
def test_edits(a: str, b: str, count: int) -> None:
    assert edits(a, b) == count


@given(st.text(max_size=8), st.text(max_size=8))
def test_edits_are_symmetric_and_zero_only_for_equals(a: str, b: str) -> None:
    assert edits(a, b) == edits(b, a)
    assert (edits(a, b) == 0) == (a == b)


def test_nearest_needs_at_most_two_edits() -> None:
    assert nearest("Rum", ["run", "resume"]) == "run"
    assert nearest("hello", ["run", "resume"]) is None


def test_suggestion_names_one_or_all() -> None:
    assert suggestion("modle", ["model", "dtype"]) == "Did you mean model?"
    assert suggestion("zzz", ["model", "dtype"]) == "Known: dtype, model"


@pytest.mark.parametrize("word", ["http", "gpu", "ttl", "a"])
def test_a_short_word_is_near_to_nothing_that_two_edits_make_of_it(word: str) -> None:
    """`http` is two edits from `tp`."""
    assert near(word, ["tp", "dtype"]) is None
    assert suggestion(word, ["tp", "dtype"]) == "Known: dtype, tp"


def test_near_words() -> None:
    assert near("pt", ["tp"]) == "tp"
    assert near("cvs", ["csv", "text"]) == "csv"
    assert near("--tpp", ["--tp", "--top-p"]) == "tp"
    assert near("DTYP", ["dtype"]) == "dtype"
