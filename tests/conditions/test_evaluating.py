"""Every atom by itself, with hand-made numbers; text and time with a plain computation."""

import re
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.conditions.evaluating import (
    MEDIAN_FROM,
    REGEX_S,
    WINDOW_BYTES,
    Evaluator,
    TooSlow,
    Values,
    whole_characters,
)
from engine_daemon.conditions.median import RunningMedian
from engine_daemon.conditions.nodes import TextEnds
from engine_daemon.conditions.parser import parse


@dataclass
class At:
    entropy: float = 3.5
    margin: float = 0.1
    step: int = 9
    position: int = 20
    cache: float | None = 50.0
    eos_ids: Sequence[int] = (2, 3)
    probs: dict[int, float] = field(default_factory=lambda: {1: 0.4, 2: 0.1, 3: 0.2, 7: 0.05})

    def prob_of(self, ids: Sequence[int]) -> float:
        return sum(self.probs[i] for i in ids)


@dataclass
class Token:
    id: int = 7
    piece: bytes = b" Ku"
    special: bool = False
    prob: float = 0.05
    rank: int = 6
    ms: float = 40.0
    median_ms: float | None = 10.0
    before: bytes = b"pods by"

    def tail(self, least: int) -> bytes:
        return self.before + (b"" if self.special else self.piece)


LITERALS = {b" Ku": [7, 8], b"x": [1], b"\n": [9]}


def holds(source: str, picked: Token | None = None, at: At | None = None) -> Values | None:
    return Evaluator(parse(source), LITERALS).holds(at or At(), picked)


TRUE = [
    ("entropy>3", {"entropy": 3.5}),
    ("entropy>=3.5", {"entropy": 3.5}),
    ("entropy!=3", {"entropy": 3.5}),
    ("margin<0.2", {"margin": 0.1}),
    ("step=9", {"step": 9}),
    ("position<=20", {"position": 20}),
    ("cache>49%", {"cache": 50.0}),
    ('p("x")>0.3', {'p("x")': 0.4}),
    ("p(eos)>0.29", {"p(eos)": pytest.approx(0.3)}),
    ("prob<0.1", {"prob": 0.05}),
    ("rank>5", {"rank": 6}),
    ("id=7", {"id": 7}),
    ('token=" Ku"', {"token": " Ku"}),
    ('token!="x"', {"token": " Ku"}),
    ('token~"^\\s*K"', {"token": " Ku"}),
    ("not special", {"special": False}),
    ("ms>39", {"ms": 40.0}),
    ("ms>3.9x", {"ms": 40.0, "median_ms": 10.0}),
    ('text~"by Ku"', {"text": "by Ku"}),
    ('stop("y K")', {'stop("y K")': True}),
    ("entropy>9 or rank>5", {"entropy": 3.5, "rank": 6}),
    ("entropy>3 and rank>5", {"entropy": 3.5, "rank": 6}),
]


@pytest.mark.parametrize(("source", "values"), TRUE, ids=[source for source, _ in TRUE])
def test_atoms_that_are_true_say_what_they_saw(source: str, values: Values) -> None:
    assert holds(source, Token()) == values
    assert holds(f"not ({source})", Token()) is None


@pytest.mark.parametrize(
    "source",
    [
        "entropy>3.5",
        "entropy<3",
        "margin>0.1",
        "step=8",
        "position>20",
        "cache>50%",
        'p("x")>0.5',
        "p(eos)>0.31",
        "prob>0.05",
        "rank>6",
        "id=8",
        'token="x"',
        'token!=" Ku"',
        'token~"^K"',
        "special",
        "ms>40",
        "ms>4x",
        'text~"pods"',
        'stop("by")',
        "entropy>3 and rank>6",
    ],
)
def test_atoms_that_are_false(source: str) -> None:
    assert holds(source, Token()) is None
    assert holds(f"not ({source})", Token()) is not None


def test_a_number_that_is_not_there_compares_with_nothing() -> None:
    nothing = At(cache=None)
    assert holds("cache>0%", at=nothing) is None
    assert holds("cache<1%", at=nothing) is None
    assert holds("ms>0.001x", Token(median_ms=None)) is None


def test_token_literals_are_all_ids_with_those_bytes() -> None:
    assert holds('token=" Ku"', Token(id=8)) is not None
    assert holds('token=" Ku"', Token(id=9)) is None


def test_special_tokens_add_no_text() -> None:
    special = Token(piece=b"<|end|>", special=True)
    assert holds("special", special) is not None
    assert holds('token~"end"', special) is not None
    assert holds('text~"by"', special) is None
    assert holds('stop("end")', special) is None


def test_matches_end_inside_the_new_token() -> None:
    token = Token(before=b"one two", piece=b" three")
    assert holds('text~"two"', token) is None
    assert holds('text~"two t"', token) == {"text": "two t"}
    assert holds('text~"t\\w+$"', token) == {"text": "three"}
    assert holds('text~"wo$"', token) is None
    assert holds('text~"(?<=two )th"', token) == {"text": "th"}


def test_a_character_that_the_new_token_completes_belongs_to_it() -> None:
    euro = "€".encode()
    token = Token(before=b"5 " + euro[:2], piece=euro[2:])
    assert holds('text~"€"', token) == {"text": "€"}
    assert holds('text~" "', token) is None
    assert holds('stop("€")', token) is not None
    open_still = Token(before=b"5 " + euro[:1], piece=euro[1:2])
    assert holds('text~"€"', open_still) is None


def test_the_window_of_a_match_is_the_last_4_kib() -> None:
    token = Token(before=b"START" + b"x" * (WINDOW_BYTES - 2), piece=b"yz")
    assert holds('text~"STARTx*yz"', token) is None
    assert holds('text~"Tx*yz"', token) is None
    assert holds('text~"^x*yz$"', token) is not None
    just = Token(before=b"T" + b"x" * (WINDOW_BYTES - 3), piece=b"yz")
    assert holds('text~"Tx*yz"', just) is not None


def test_the_window_begins_with_a_whole_character() -> None:
    text = "é".encode() * 3
    assert whole_characters(text[1:]) == text[2:]
    assert whole_characters(b"\x80" * 5) == b"\x80" * 2
    token = Token(before="é".encode() * WINDOW_BYTES, piece=b"z")
    found = holds('text~"^é+z$"', token)
    assert found is not None


@given(
    before=st.binary(max_size=12),
    piece=st.binary(max_size=6),
    text=st.binary(min_size=1, max_size=5),
)
def test_stop_against_a_plain_search(before: bytes, piece: bytes, text: bytes) -> None:
    whole = before + piece
    ends = [k + len(text) for k in range(len(whole)) if whole[k:].startswith(text)]
    expected = any(end > len(before) for end in ends)
    condition = Evaluator(TextEnds(text), {})
    assert (condition.holds(At(), Token(before=before, piece=piece)) is not None) is expected


@given(before=st.text("ab é\n", max_size=20), piece=st.text("ab é\n", min_size=1, max_size=6))
@pytest.mark.parametrize("pattern", ["ab", "a+b", r"\bb", "(?m)^a", "é.", "b$", "a|b", "[^a]{2}"])
def test_text_against_a_plain_search(pattern: str, before: str, piece: str) -> None:
    matches = re.finditer(pattern, before + piece)
    expected = next((m[0] for m in matches if m.end() > len(before)), None)
    token = Token(before=before.encode(), piece=piece.encode())
    found = holds(f"text~'{pattern}'", token)
    assert (None if found is None else found["text"]) == expected


REDOS = [
    r"(.*){1,32000}[bc]",
    r"(a+)+b",
    r"(a|a)*b",
    r"(a*)*b",
    r"([a-z]+)*\d",
    r"(.*a){12}b",
    r"^(a?){40}a{40}c",
]


@pytest.mark.parametrize("pattern", REDOS)
@pytest.mark.parametrize("text", [b"a" * 4000 + b"c", b"a" * 60 + b"0c", b"ab" * 2000 + b"!"])
def test_no_regular_expression_takes_longer_than_its_limit(pattern: str, text: bytes) -> None:
    evaluator = Evaluator(parse(f"text~'{pattern}'"), {})
    started = time.thread_time()
    with suppress(TooSlow):
        evaluator.holds(At(), Token(before=text[:-1], piece=text[-1:]))
    assert time.thread_time() - started < 10 * REGEX_S


def test_some_of_them_reach_the_limit() -> None:
    evaluator = Evaluator(parse(r"token~'(.*){1,32000}[bc]'"), {})
    with pytest.raises(TooSlow):
        evaluator.holds(At(), Token(piece=b"a" * 60))


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=60))
def test_the_running_median(values: list[float]) -> None:
    running = RunningMedian(values[:3])
    for value in values[3:]:
        running.add(value)
    assert running.value() == statistics.median(values)
    assert len(running) == len(values)


def test_the_median_counts_from_the_eighth_step() -> None:
    assert MEDIAN_FROM == 7


def test_a_literal_without_ids_is_our_own_mistake() -> None:
    with pytest.raises(KeyError):
        Evaluator(parse('token="unknown"'), LITERALS)
