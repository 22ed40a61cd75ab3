"""The error of a condition that cannot be used: what is wrong, and a caret under where.

Knows characters and cells; nothing of grammar.
"""

import unicodedata
from typing import Final

from engine_daemon.characters import Visible
from engine_daemon.errors import InspectError

_CHARACTERS: Final = Visible()


class ConditionError(InspectError):
    """A wrong condition. `at` is the character of `source` where the fault begins."""

    def __init__(self, message: str, source: str, at: int, hint: str = "") -> None:
        super().__init__(message, hint, code="bad_condition")
        self.source = source
        self.at = min(max(at, 0), len(source))
        self.picture = picture(source, self.at)


def picture(source: str, at: int) -> str:
    """Two lines: the source as it can be shown, and `^` under the character `at`."""
    shown = source.translate(_CHARACTERS)
    before = source[:at].translate(_CHARACTERS)
    return f"{shown}\n{' ' * cells(before)}^"


def cells(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(map(_width, text))


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
