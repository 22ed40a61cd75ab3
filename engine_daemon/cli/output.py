"""Standard output and error of a command: safe on a terminal, exact elsewhere.

Knows streams and characters; nothing of what is said on them.
"""

import codecs
import os
import sys
from typing import Final, TextIO

from engine_daemon.characters import Visible, undecodable
from engine_daemon.errors import Exit, InspectError

_LINES_KEPT: Final = Visible(kept="\n\t")


def safe(text: str) -> str:
    """`text` with no character that could steer a terminal; line breaks and tabs stay."""
    clean = text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    return undecodable(clean).translate(_LINES_KEPT)


def say(text: str) -> None:
    """One line on standard error."""
    write_error(safe(text) + "\n")


def write_error(text: str, unknown: str = "backslashreplace") -> None:
    """`text` as it is on standard error, as far as somebody reads that."""
    try:
        _write(text, sys.stderr, unknown)
    except OSError:
        _give_up(2)


def tell(text: str) -> None:
    """One line on standard output. Raises BrokenPipeError when nobody reads it any more."""
    write_out(safe(text) + "\n")


def write_out(text: str) -> None:
    """`text` as it is on standard output; raises as `tell`."""
    try:
        _write(text, sys.stdout)
    except BrokenPipeError:
        raise
    except OSError as error:
        give_up_stdout()
        raise unwritable(error) from None


def unwritable(error: OSError) -> InspectError:
    """The error of a standard output that takes no more."""
    return InspectError(
        f"cannot write to standard output: {error.strerror}", exit_code=Exit.DAEMON, code="io"
    )


def _write(text: str, stream: TextIO, unknown: str = "backslashreplace") -> None:
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, unknown).decode(encoding))
    stream.flush()


class TerminalText:
    """Bytes that arrive in pieces → safe text; a character split over pieces stays whole."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def feed(self, piece: bytes, *, final: bool = False) -> str:
        """What can be shown now; `final`: the rest too."""
        return undecodable(self._decoder.decode(piece, final)).translate(_LINES_KEPT)


def give_up_stdout() -> None:
    """Nobody reads standard output any more: what is still buffered goes nowhere, quietly."""
    _give_up(1)


def _give_up(fd: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, fd)
    os.close(nowhere)
