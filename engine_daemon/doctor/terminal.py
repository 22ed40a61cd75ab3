"""What the screen finds: a terminal, its type, colours, characters and size."""

import contextlib
import curses
import locale
import os
import sys
from collections.abc import Iterator
from typing import Final

from engine_daemon.doctor.row import Row, ok, warn

FULL: Final = (100, 32)
LEAST: Final = (20, 5)
_UTF8: Final = ("utf-8", "utf8")


def look() -> Iterator[Row]:
    """Everything the screen needs of where it is drawn."""
    term = os.environ.get("TERM", "")
    yield _streams()
    yield _type(term)
    yield _colours(term)
    yield _characters()
    yield from _size()


def _streams() -> Row:
    names = {"input": sys.stdin, "output": sys.stdout, "error output": sys.stderr}
    elsewhere = [name for name, stream in names.items() if stream is None or not stream.isatty()]
    if elsewhere:
        return warn(
            "terminal",
            f"{', '.join(elsewhere)}: no terminal, so no screen here",
            "Over ssh: ssh -t HOST llm-inspect; without a screen: llm-inspect run",
        )
    return ok("terminal", "input and output are one")


def _type(term: str) -> Row:
    if term in ("", "dumb"):
        named = f"TERM={term}" if term else "TERM is not set"
        return warn("TERM", f"{named}: it has no screen", "Set it to what the terminal is")
    try:
        curses.setupterm(term, 1)
    except curses.error:
        return warn(
            "TERM",
            f"{term} is not known on this machine: other programs may draw wrong",
            "Install its terminfo (tic), or set TERM=xterm-256color",
        )
    return ok("TERM", term)


def _colours(term: str) -> Row:
    if os.environ.get("NO_COLOR"):
        return ok("colours", "none: NO_COLOR is set; meaning is in the signs and in bold")
    if os.environ.get("COLORTERM") in ("truecolor", "24bit"):
        return ok("colours", "16 million")
    count = 0
    if term not in ("", "dumb"):
        with contextlib.suppress(curses.error):
            curses.setupterm(term, 1)
            count = curses.tigetnum("colors")
    if count >= 256:
        return ok("colours", f"{count}; COLORTERM=truecolor where the terminal has more")
    return warn(
        "colours",
        f"{max(count, 0) or 'none'}",
        "TERM=xterm-256color where the terminal has more; the theme ansi-dark needs 16",
    )


def _characters() -> Row:
    named = locale.getencoding()
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        if os.environ.get(name):
            named = os.environ[name].partition(".")[2].partition("@")[0] or named
            break
    if named.lower() in _UTF8:
        return ok("characters", named)
    return warn("characters", f"{named}: lines and signs come out wrong", "export LC_ALL=C.UTF-8")


def _size() -> Iterator[Row]:
    for fd in (0, 1, 2):
        try:
            columns, lines = os.get_terminal_size(fd)
        except OSError:
            continue
        says = f"{columns}×{lines}"
        if 0 in (columns, lines):
            yield warn("size", f"{says}: it tells none; 80×24 is taken", "stty cols 120 rows 40")
        elif columns < LEAST[0] or lines < LEAST[1]:
            yield warn("size", f"{says}: too small to show anything", "Make the window larger")
        elif columns < FULL[0] or lines < FULL[1]:
            least = f"{FULL[0]}×{FULL[1]}"
            yield warn("size", f"{says}: some panes are left out", f"All of them need {least}")
        else:
            yield ok("size", says)
        return
