"""`engine_daemon.sizes`: bytes for people, and the one place that makes them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_daemon.sizes import sized, sized_of

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1.0 kB"),
        (1500, "1.5 kB"),
        (9_949, "9.9 kB"),
        (9_950, "10 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (270_000_000, "270 MB"),
        (999_400_000, "999 MB"),
        (54_600_000_000, "54.6 GB"),
        (151_000_000_000, "151 GB"),
        (999_960_000_000, "1.0 TB"),
        (5e15, "5000 TB"),
    ],
)
def test_one_to_three_digits(count: float, words: str) -> None:
    assert sized(count) == words


def test_both_in_the_unit_of_the_whole() -> None:
    assert sized_of(10e6, 93e6) == "10/93 MB"
    assert sized_of(0, 60_000) == "0/60 kB"
    assert sized_of(1e6, 3e9) == "0.0/3.0 GB"


def test_nothing_else_makes_such_words() -> None:
    """A unit after a number that was divided on the spot is how `0 MB` came about."""
    by_hand = re.compile(r"/ 1(?:e[369]|000)\b[^}]*\} ?(?:[kMG]B)")
    found = [
        str(path)
        for folder in ("engine_daemon", "tui")
        for path in (ROOT / folder).rglob("*.py")
        if by_hand.search(path.read_text("utf-8"))
    ]
    assert found == []


def test_there_is_one_unit_everywhere() -> None:
    """What people are told counts in thousands; comments may speak of powers of two."""
    found = [
        f"{path}:{line}"
        for folder in ("engine_daemon", "tui")
        for path in (ROOT / folder).rglob("*.py")
        for line, text in _texts(ast.parse(path.read_text("utf-8")))
        if re.search(r"[KMGT]iB\b", text)
    ]
    assert found == []


def _texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Strings of a program that are not there as documentation."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value
