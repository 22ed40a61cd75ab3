"""Which characters never reach a terminal, and what stands for them instead.

Characters are mapped, never parsed: where no control character survives, no escape sequence does.
Knows Unicode only; line breaks and cell widths are the caller's matter.
"""

import re
import unicodedata
from typing import Final

_INVISIBLE: Final = frozenset(
    {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0}
    | {*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), *range(0x180B, 0x1810)}
)
"""Drawn as nothing, or change the width of their neighbour, without being category Cf."""
_ESCAPED: Final = re.compile("[\udc80-\udcff]+")


def visible(code: int) -> str:
    """What stands for one code point: itself when it is harmless, else something one can see."""
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if 0x80 <= code < 0xA0:
        return f"<{code:02x}>"
    char = chr(code)
    category = unicodedata.category(char)
    if category == "Zs" and code != 0x20:
        return f"<U+{code:04X}>"
    if code in _INVISIBLE or category in ("Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return f"<U+{code:04X}>"
    return char


class Visible(dict[int, str]):
    """`str.translate` table that fills itself: each code point is looked up once."""

    def __init__(self, kept: str = "") -> None:
        super().__init__({ord(char): char for char in kept})

    def __missing__(self, code: int) -> str:
        mapped = self[code] = visible(code)
        return mapped


def undecodable(text: str) -> str:
    """Bytes that were not UTF-8 (decoded with `surrogateescape`) as `<E2 98>`."""
    return _ESCAPED.sub(_hex, text)


def _hex(match: re.Match[str]) -> str:
    return "<" + " ".join(f"{ord(char) - 0xDC00:02X}" for char in match[0]) + ">"
