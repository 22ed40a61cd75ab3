"""Standard output and error of a command: safe on a terminal, exact elsewhere.

Knows streams and characters; nothing of what is said on them.
"""

import codecs
import os
import sys
from typing import Final, TextIO

from engine_daemon.characters import Visible, undecodable

_LINES_KEPT: Final = Visible(kept="\n\t")


def safe(text: str) -> str:
    """`text` with no character that could steer a terminal; line breaks and tabs stay."""
    clean = text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    return undecodable(clean).translate(_LINES_KEPT)


def say(text: str, stream: TextIO | None = None) -> None:
    """One line on standard error, or on `stream`."""
    target = stream or sys.stderr
    line = safe(text) + "\n"
    encoding = target.encoding or "utf-8"
    target.write(line.encode(encoding, "backslashreplace").decode(encoding))
    target.flush()


def tell(text: str) -> None:
    """One line on standard output."""
    say(text, sys.stdout)


class TerminalText:
    """Bytes that arrive in pieces → safe text; a character split over pieces stays whole."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def feed(self, piece: bytes, *, final: bool = False) -> str:
        """What can be shown now; `final`: the rest too."""
        return undecodable(self._decoder.decode(piece, final)).translate(_LINES_KEPT)


def give_up_stdout() -> None:
    """Nobody reads standard output any more: what is still buffered goes nowhere, quietly."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
