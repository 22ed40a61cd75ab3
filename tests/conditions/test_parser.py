"""What may be written, what it means, and where a fault is said to be."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.conditions.faults import ConditionError, picture
from engine_daemon.conditions.nodes import (
    And,
    CommittedNumber,
    Condition,
    Not,
    Or,
    PendingNumber,
    ProbOf,
    Slower,
    Special,
    TextEnds,
    TextMatches,
    TokenIs,
    TokenMatches,
    is_committed,
    literals,
)
from engine_daemon.conditions.parser import LONGEST, parse
from engine_daemon.conditions.quoting import quote, unquote

ENTROPY = PendingNumber("entropy", ">", 3)
RANK = CommittedNumber("rank", ">", 5)

ATOMS: list[tuple[str, Condition]] = [
    ("entropy>3", ENTROPY),
    ("margin<0.05", PendingNumber("margin", "<", 0.05)),
    ("margin<5%", PendingNumber("margin", "<", 0.05)),
    ('p(" Ku")>0.2', ProbOf(b" Ku", ">", 0.2)),
    ("p(' Ku') >= 20%", ProbOf(b" Ku", ">=", 0.2)),
    ("p(eos)>0.5", ProbOf(None, ">", 0.5)),
    ("step=64", PendingNumber("step", "=", 64)),
    ("step==64", PendingNumber("step", "=", 64)),
    ("position>=4096", PendingNumber("position", ">=", 4096)),
    ("cache>90%", PendingNumber("cache", ">", 90)),
    ("prob<0.1", CommittedNumber("prob", "<", 0.1)),
    ("prob<1e-3", CommittedNumber("prob", "<", 0.001)),
    ("rank>5", RANK),
    ('token=" Ku"', TokenIs(b" Ku", True)),
    ('token != "\\n"', TokenIs(b"\n", False)),
    ('token="\\xe2\\x98"', TokenIs(b"\xe2\x98", True)),
    ('token~"^\\s*def"', TokenMatches(r"^\s*def")),
    ("id=123", CommittedNumber("id", "=", 123)),
    ("special", Special()),
    ('text~"re\\"g\\d+ex"', TextMatches('re"g\\d+ex')),
    ("ms>50", CommittedNumber("ms", ">", 50)),
    ("ms>3x", Slower(">", 3)),
    ('stop("END")', TextEnds(b"END")),
]


@pytest.mark.parametrize(("source", "node"), ATOMS, ids=[source for source, _ in ATOMS])
def test_atoms(source: str, node: Condition) -> None:
    assert parse(source) == node
    assert parse(f"  ( {source} ) ") == node


@pytest.mark.parametrize(
    ("source", "node"),
    [
        ("entropy>3 and rank>5", And((ENTROPY, RANK))),
        ("entropy>3 or rank>5 or special", Or((ENTROPY, RANK, Special()))),
        ("entropy>3 or rank>5 and special", Or((ENTROPY, And((RANK, Special()))))),
        ("(entropy>3 or rank>5) and special", And((Or((ENTROPY, RANK)), Special()))),
        ("not entropy>3 and rank>5", And((Not(ENTROPY), RANK))),
        ("not (entropy>3 and rank>5)", Not(And((ENTROPY, RANK)))),
        ("not not special", Not(Not(Special()))),
    ],
)
def test_and_binds_closer_than_or_and_not_closest(source: str, node: Condition) -> None:
    assert parse(source) == node


FAULTS = [
    # source, the same width with ^ under the fault, part of the message
    ("entropy>>3", "        ^", "does not belong here"),
    ("entopy>3", "^", "there is no 'entopy'"),
    ("entropy>3 and order>2", "              ^", "there is no 'order'"),
    ("entropy", "       ^", "compared with something"),
    ("entropy>", "        ^", "ends too early"),
    ('entropy>"x"', "        ^", "compared with a number"),
    ("entropy~3", "       ^", "takes > >= < <= = !="),
    ("ms>3y", "   ^", "no number"),
    ("entropy>3x", "        ^", "takes no x"),
    ("p>3", " ^", "a token in brackets"),
    ("p(foo)>0.1", "  ^", "a text in quotes, or eos"),
    ('p("a")', "      ^", "compared with something"),
    ('p("")>0.1', "  ^", "empty"),
    ("p(eos)>1.5", "       ^", "between 0 and 1"),
    ("cache>90", "      ^", "percentage"),
    ("prob>2", "     ^", "between 0 and 1"),
    ("step=1.5", "     ^", "whole number"),
    ("rank>-3", "     ^", "never negative"),
    ("entropy > 1e400", "          ^", "too large"),
    ("rank>1e400", "     ^", "too large"),
    ("ms>1e400x", "   ^", "too large"),
    ("p(eos)<1e400%", "       ^", "too large"),
    ("step(3)=4", "     ^", "does not belong here"),
    ('step("3")=4', "     ^", "nothing in brackets"),
    ("token=3", "      ^", "a text in quotes"),
    ('token>"a"', "     ^", "takes = != ~"),
    ('token="a\\q"', "        ^", "means nothing here"),
    ('token="abc', "      ^", "never closed"),
    ('token~"a(b"', "          ^", "missing )"),
    ('token~"\\"(b"', "           ^", "missing )"),
    ('text="a"', "    ^", "takes ~"),
    ("special>3", "       ^", "stands alone"),
    ("stop", "    ^", "needs a text"),
    ("stop(eos)", "     ^", "needs a text"),
    ("(entropy>3", "          ^", "expected )"),
    ("entropy>3)", "         ^", "expected the end"),
    ("entropy>3 and", "             ^", "ends too early"),
    ("entropy>3 & special", "          ^", "does not belong here"),
    ("entropy>3 rank>5", "          ^", "expected and, or, the end"),
    ("not", "   ^", "ends too early"),
    ("and", "^", "joins"),
    ("3>entropy", "^", "does not belong here"),
    ("  ", "^", "empty"),
    ("", "^", "empty"),
]


@pytest.mark.parametrize(("source", "caret", "words"), FAULTS, ids=[f[0] for f in FAULTS])
def test_faults_and_where_they_are(source: str, caret: str, words: str) -> None:
    with pytest.raises(ConditionError) as raised:
        parse(source)
    assert raised.value.picture == f"{source}\n{caret}"
    assert words in raised.value.message
    assert "\n" not in raised.value.message


def test_the_caret_stands_under_wide_and_mapped_characters() -> None:
    assert picture("日本>x", 3) == "日本>x\n     ^"
    assert picture("a\nb>x", 2) == "a␊b>x\n  ^"
    assert picture("e\u0301>x", 2) == "e\u0301>x\n ^"


def test_too_long_and_too_deep() -> None:
    with pytest.raises(ConditionError, match="at most"):
        parse("entropy>3 or " * LONGEST)
    deep = "not " * 400 + "special"
    with suppress(ConditionError):
        assert is_committed(parse(deep))
    brackets = "(" * 900 + "special" + ")" * 900
    assert parse(brackets) == Special()


def fault_of(source: str) -> ConditionError | None:
    try:
        parse(source)
    except ConditionError as error:
        return error
    return None


@given(st.text(max_size=60))
def test_any_text_is_a_condition_or_a_fault_inside_it(source: str) -> None:
    fault = fault_of(source)
    assert fault is None or 0 <= fault.at <= len(source)
    assert fault is None or fault.picture.endswith("^")


PARTS = st.sampled_from(
    ["entropy", "p", "(", ")", '" a"', "eos", ">", "=", "~", "3", "90%", "3x", "and", "or", "not"]
)


@given(st.lists(PARTS, max_size=12).map(" ".join))
def test_any_words_are_a_condition_or_a_fault_inside_it(source: str) -> None:
    fault = fault_of(source)
    assert fault is None or 0 <= fault.at <= len(source)


@given(st.binary(min_size=1, max_size=40))
def test_any_bytes_can_be_quoted(text: bytes) -> None:
    quoted = quote(text)
    assert quoted.isprintable()
    assert unquote(quoted[1:-1]) == text
    assert parse(f"stop({quoted})") == TextEnds(text)


def test_committed_and_its_literals() -> None:
    assert not is_committed(parse("entropy>3 or p(eos)>0.5 and not cache>9%"))
    assert is_committed(parse("entropy>3 or not special"))
    both = parse('p("a")>0.1 or token="b" or p("a")<0.9 or p(eos)>0.1 or stop("c")')
    assert literals(both) == [b"a", b"b"]
