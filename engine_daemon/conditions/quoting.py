r"""Texts inside conditions: how bytes are written between quotes, and read back.

A literal knows `\n \t \r \\ \" \'` and `\xHH` (one byte); everything else is UTF-8 as it stands.
Knows no grammar.
"""

import re
from typing import Final

_ESCAPE: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|(.)|$)", re.DOTALL)
_SIMPLE: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", '"': b'"', "'": b"'"}
_WRITTEN: Final = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\", '"': r"\""}


class BadEscape(ValueError):
    """An escape that means nothing; `at` is where it begins in the text between the quotes."""

    def __init__(self, escape: str, at: int) -> None:
        super().__init__(escape)
        self.escape = escape
        self.at = at


def unquote(body: str) -> bytes:
    """The bytes of what stands between the quotes of a literal."""
    parts: list[bytes] = []
    last = 0
    for found in _ESCAPE.finditer(body):
        parts.append(_encoded(body[last : found.start()]))
        last = found.end()
        if found[1] is not None:
            parts.append(bytes.fromhex(found[1]))
        elif found[2] in _SIMPLE:
            parts.append(_SIMPLE[found[2]])
        else:
            raise BadEscape(found[0], found.start())
    return b"".join([*parts, _encoded(body[last:])])


def _encoded(text: str) -> bytes:
    """Bytes of the command line that are no UTF-8 come as lone surrogates: they are kept."""
    return text.encode("utf-8", "surrogateescape")


def quote(text: bytes) -> str:
    """A literal that `unquote` reads back, on one line and in visible characters."""
    return f'"{"".join(map(_written, text.decode("utf-8", "surrogateescape")))}"'


def _written(char: str) -> str:
    if char in _WRITTEN:
        return _WRITTEN[char]
    if char.isprintable():
        return char
    return "".join(f"\\x{byte:02x}" for byte in _encoded(char))


def unquote_pattern(body: str, mark: str) -> str:
    """A regular expression between quotes: only the quote itself is escaped."""
    return body.replace(f"\\{mark}", mark)
