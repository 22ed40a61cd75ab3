"""Untrusted bytes → text that is safe to draw: the one way of anything foreign onto the screen.

Characters are mapped, never parsed: where no control character survives, no escape sequence does.
Knows Unicode and cell widths; nothing of tokens' meaning, colours or widgets.
"""

import re
from collections.abc import Iterator
from typing import Final, NewType

from rich.cells import cell_len, get_character_cell_size

from engine_daemon.characters import Visible, undecodable
from engine_daemon.sizes import sized

SafeText = NewType("SafeText", str)
"""Text without a single control, bidi, invisible or unassigned character."""

SPACE: Final = "␣"
NEWLINE: Final = "⏎"
TAB: Final = "⇥"
ELLIPSIS: Final = "…"
DASH: Final = "–"
"""Stands where a value is not there."""
_MAX_MARKS: Final = 4
"""Combining marks that one base character may carry."""
_MAYBE_MARKS: Final = re.compile("[^\x00-\u02ff\u2000-\u20cf\u2100-\u2bff\u2e00-\u2fff]")
"""Where zero-width marks lie; none of the signs that stand for something is in it. (What is left
out is named: compiled at every start, a class that reaches beyond 16 bits takes 4 ms.)"""
_PLAIN: Final = re.compile(r"[ -~]*")


class _Line(Visible):
    """The shared map, with marks for a line break and a tab."""

    def __init__(self) -> None:
        super().__init__()
        self[0x0A], self[0x09] = NEWLINE, TAB


_CHARACTERS: Final = _Line()


def _thin_marks(text: str) -> str:
    """At most `_MAX_MARKS` zero-width marks after one base; the rest becomes visible."""
    kept: list[str] = []
    run = 0
    for char in text:
        run = run + 1 if get_character_cell_size(char) == 0 else 0
        kept.append(char if run <= _MAX_MARKS else f"<U+{ord(char):04X}>")
    first = text[:1]
    if first and get_character_cell_size(first) == 0:
        kept.insert(0, "◌")
    return "".join(kept)


def show(raw: bytes, *, space: str = " ") -> SafeText:
    """One line of safe text for any bytes; bytes that are not UTF-8 show as `<E2 98>`."""
    text = raw.decode("utf-8", "surrogateescape").replace(" ", space)
    if not _PLAIN.fullmatch(text):
        text = undecodable(text).translate(_CHARACTERS)
        if _MAYBE_MARKS.search(text):
            text = _thin_marks(text)
    return SafeText(text)


def show_text(text: str) -> SafeText:
    """The same for a str from outside (names, errors, file names)."""
    return show(text.encode("utf-8", "surrogatepass"))


def token(piece: bytes) -> SafeText:
    """A token as lists show it: spaces visible, never empty."""
    return show(piece, space=SPACE) if piece else SafeText("∅")


def lines_kept(raw: bytes, *, space: str = " ") -> SafeText:
    """Safe text in which each newline keeps its mark and breaks the line after it."""
    return SafeText(show(raw, space=space).replace(NEWLINE, NEWLINE + "\n"))


def width(text: str) -> int:
    """Terminal cells of `text`."""
    return cell_len(text)


def clip(text: SafeText, cells: int) -> SafeText:
    """At most `cells` cells of `text`, the last one `…` when something is left out."""
    if cell_len(text) <= cells:
        return text
    if cells <= 0:
        return SafeText("")
    used, kept = 0, 0
    for char in text:
        size = get_character_cell_size(char)
        if used + size > cells - 1:
            break
        used, kept = used + size, kept + 1
    return SafeText(text[:kept] + ELLIPSIS)


def wrap(text: SafeText, cells: int, rows: int) -> list[SafeText]:
    """At most `rows` lines of `cells` cells, broken between words; the last one clipped."""
    lines: list[str] = []
    for word in _pieces(text, cells):
        if len(lines) == rows and cell_len(lines[-1]) > cells:
            break  # what comes is clipped anyway, however long it is
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and (cell_len(longer) <= cells or len(lines) == rows):
            lines[-1] = longer
        else:
            lines.append(word)
    return [clip(SafeText(line), cells) for line in lines]


def _pieces(text: str, cells: int) -> Iterator[str]:
    """Words; one that is longer than a line, in parts."""
    for word in text.split(" "):
        part, used = "", 0
        for char in word if cell_len(word) > cells else "":
            size = get_character_cell_size(char)
            if part and used + size > cells:
                yield part
                part, used = "", 0
            part, used = part + char, used + size
        yield part or word


def tail(text: SafeText, cells: int) -> SafeText:
    """At most the last `cells` cells of `text`, the first one `…` when something is left out."""
    if cell_len(text) <= cells:
        return text
    used, kept = 1, len(text)
    while kept and used + get_character_cell_size(text[kept - 1]) <= cells:
        kept -= 1
        used += get_character_cell_size(text[kept])
    return SafeText(ELLIPSIS + text[kept:])


def fit(text: SafeText, cells: int, *, right: bool = False) -> SafeText:
    """Exactly `cells` cells: clipped or padded (`right`: on the left side)."""
    text = clip(text, cells)
    gap = " " * (cells - cell_len(text))
    return SafeText(gap + text if right else text + gap)


def percent(value: float | None) -> SafeText:
    """`22.5 %`; `<0.1 %` for what would read as nothing; a dash where there is no value."""
    if value is None or value != value:
        return SafeText(DASH)
    return SafeText("<0.1 %" if 0 < value < 0.0005 else f"{value * 100:.1f} %")


def millis(value: float | None) -> SafeText:
    """`13.1 ms`; a dash where there is no value."""
    if value is None or value != value:
        return SafeText(DASH)
    if value >= 10_000:
        return SafeText(f"{value / 1000:.1f} s")
    return SafeText(f"{value:.2f} ms" if value < 1 else f"{value:.1f} ms")


def size(value: int | None) -> SafeText:
    """Bytes as everywhere (`engine_daemon.sizes`): `23 kB`; a dash where there is no value."""
    return SafeText(DASH if value is None else sized(value))


def count(value: int | None) -> SafeText:
    """An integer with thin groups: `12 345`."""
    return SafeText(DASH if value is None else f"{value:,}".replace(",", " "))
