"""One thing that was looked at, and how it is."""

from dataclasses import dataclass
from typing import Literal

Word = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Row:
    """`area` is what was looked at, `says` how it is, `do` what to do about it (none when ok).

    `warn`: something will not work, or not as well; `fail`: nothing will until it is mended.
    """

    area: str
    word: Word
    says: str
    do: str = ""


def ok(area: str, says: str) -> Row:
    """As it should be."""
    return Row(area, "ok", says)


def warn(area: str, says: str, do: str) -> Row:
    """Less than it could be."""
    return Row(area, "warn", says, do)


def fail(area: str, says: str, do: str) -> Row:
    """In the way."""
    return Row(area, "fail", says, do)
