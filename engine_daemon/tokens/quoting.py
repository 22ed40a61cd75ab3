"""A chat in which the user's special tokens stay text while the template's become special ids.

The user's are marked before the template is rendered; afterwards the template's are replaced by
stand-ins that a second tokenizer knows. Knows no tokenizer and no template language.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from engine_daemon.errors import InspectError

_OPEN: Final = "\U00100000"
_CLOSE: Final = "\U00100001"
_FIRST_STAND_IN: Final = 0x100002
_MARKS: Final = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}|[{_OPEN}{_CLOSE}]")
_OURS: Final = re.compile("[\U00100000-\U0010fffd]")


def pattern(specials: Sequence[str]) -> re.Pattern[str]:
    """Any of `specials`, the longest that fits."""
    longest_first = sorted(filter(None, specials), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def mark(text: str, specials: re.Pattern[str]) -> str:
    """`text` with its special tokens between marks.

    Raises InspectError for a text that has characters like the marks: nothing else uses them.
    """
    if _OURS.search(text):
        raise InspectError(
            "the prompt has private-use characters (U+100000 …) that this needs for itself",
            "Leave out --chat or --no-specials",
            code="bad_prompt",
        )
    return specials.sub(lambda found: f"{_OPEN}{found[0]}{_CLOSE}", text)


def unmark(text: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text without marks, and the character ranges that were between two of them."""
    parts: list[str] = []
    quoted: list[tuple[int, int]] = []
    at = length = 0
    for found in _MARKS.finditer(text):
        inner = found[1] or ""
        parts += [text[at : found.start()], inner]
        length += found.start() - at
        if inner:
            quoted.append((length, length + len(inner)))
        length += len(inner)
        at = found.end()
    parts.append(text[at:])
    return "".join(parts), tuple(quoted)


class StandIns:
    """One private-use character for each special token."""

    def __init__(self, specials: Sequence[str]) -> None:
        self.characters = {
            content: chr(_FIRST_STAND_IN + n) for n, content in enumerate(filter(None, specials))
        }
        self._pattern = pattern(specials)

    @property
    def written(self) -> Mapping[int, str]:
        """For `str.translate`: stand-ins back to what they stand for."""
        return {ord(c): content for content, c in self.characters.items()}

    def put(self, text: str, quoted: Sequence[tuple[int, int]]) -> str:
        """`text` with a stand-in for every special token outside `quoted`."""
        parts: list[str] = []
        at = 0
        for start, end in (*quoted, (len(text), len(text))):
            outside = text[at:start]
            parts += [self._pattern.sub(lambda found: self.characters[found[0]], outside)]
            parts += [text[start:end]]
            at = end
        return "".join(parts)
