"""Every row of the matrix has a test, and every mark names a row."""

import re
from pathlib import Path

from tests.faults.matrix import ROWS

TESTS = Path(__file__).parents[1]


def marked() -> set[str]:
    """The rows that tests name."""
    texts = [path.read_text("utf-8") for path in TESTS.rglob("test_*.py")]
    calls = [found for text in texts for found in re.findall(r"mark\.fault\(([^)]*)\)", text)]
    return {row for call in calls for row in re.findall(r'"(\w+)"', call)}


def test_every_row_has_a_test() -> None:
    assert set(ROWS) <= marked()


def test_every_mark_names_a_row() -> None:
    assert marked() <= set(ROWS)
