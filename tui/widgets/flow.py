"""Running text of tokens, wrapped to a width, growing at its end without being wrapped again.

Lines are kept as where they start; their text is made when they are drawn. A glyph whose bytes
come in several tokens belongs to the first of them, and shows as hex until the last has come.
Knows pieces and cells; no colours and no widgets.
"""

from array import array
from collections.abc import Callable
from typing import Final

from rich.cells import cell_len, get_character_cell_size

from tui.text import NEWLINE, SPACE, SafeText, lines_kept, show

_REMEMBERED: Final = 8192
"""Texts of pieces kept: the same few thousand tokens come again and again."""
_LEADS: Final = ((0xC2, 0xDF, 1), (0xE0, 0xEF, 2), (0xF0, 0xF4, 3))


def missing_bytes(raw: bytes) -> tuple[int, int]:
    """An unfinished UTF-8 character at the end: its bytes that are there, and that are missing."""
    for back in range(1, min(3, len(raw)) + 1):
        byte = raw[-back]
        if 0x80 <= byte < 0xC0:
            continue
        for low, high, follow in _LEADS:
            if low <= byte <= high and follow > back - 1:
                return back, follow - (back - 1)
        break
    return 0, 0


class Flow:
    """Layout of tokens 0 … `count` - 1; `fetch(i)` gives piece and whether it is special."""

    def __init__(self, fetch: Callable[[int], tuple[bytes, bool]], width: int) -> None:
        self._fetch = fetch
        self._shown: dict[bytes, SafeText] = {}
        self.width = max(width, 4)
        self.clear()

    def clear(self) -> None:
        """Nothing laid out."""
        self.count = 0
        self._total = 0
        self._line_token = array("I", [0])
        self._line_offset = array("I", [0])
        self._token_line = array("I")
        self._skip = array("B")
        self._carry: list[int] = []
        self._x = 0
        self._break = 0
        self._open: int | None = None
        self._open_total = 0

    @property
    def lines(self) -> int:
        """Lines laid out so far, at least one."""
        return len(self._line_token)

    def line_of(self, token: int) -> int:
        """The line on which a token begins; the last one for a token not laid out yet."""
        return self._token_line[token] if token < self.count else self.lines - 1

    def owner(self, token: int) -> int:
        """The token whose text shows this one's bytes, when all of them finish its glyph."""
        while 0 < token < self.count and self._consumed(token):
            token -= 1
        return token

    def _consumed(self, token: int) -> bool:
        return 0 < self._skip[token] == len(self._fetch(token)[0])

    def lay(self, total: int, budget: int) -> bool:
        """Lay out up to `budget` more tokens of `total`; True when all of them are."""
        if self._open is not None and total > self._open_total:
            self._take_back(self._open)
        self._total = total
        end = min(total, self.count + budget)
        while self.count < end:
            self._lay_one(self.count)
        return self.count >= total

    def _take_back(self, token: int) -> None:
        """Forget the end of the layout, from a line that begins with a whole token on."""
        line = max(self._token_line[token] - 1, 0)
        while line and self._line_offset[line]:
            line -= 1
        first = self._line_token[line]
        self._carry = []
        for k in range(first, self.count):
            if self._skip[k]:
                self._carry.append(self._skip[k])
            if not self._consumed(k):
                break
        del self._line_token[line + 1 :], self._line_offset[line + 1 :]
        del self._token_line[first:], self._skip[first:]
        self.count, self._x, self._break, self._open = first, 0, first, None

    def text(self, token: int) -> SafeText:
        """What a token shows in running text: newlines break after their mark."""
        piece, special = self._fetch(token)
        return self._show(token, piece, special)

    def _show(self, token: int, piece: bytes, special: bool) -> SafeText:
        if special:
            return show(piece) or SafeText("∅")
        skip = self._skip[token] if token < len(self._skip) else 0
        own = piece[skip:] if skip else piece
        if own and own[-1] >= 0x80:
            own += self._borrow(token, own)
        if own in self._shown:
            return self._shown[own]
        if len(self._shown) >= _REMEMBERED:
            self._shown.clear()
        shown = self._shown[own] = lines_kept(own, space=SPACE)
        return shown

    def _borrow(self, token: int, own: bytes) -> bytes:
        """Bytes of the next tokens that finish the last character; empty if they do not."""
        there, missing = missing_bytes(own)
        borrowed = b""
        while len(borrowed) < missing:
            token += 1
            if token >= self._total:
                return b""
            piece, special = self._fetch(token)
            part = piece[: missing - len(borrowed)]
            if special or not part:
                return b""
            borrowed += part
        whole = (own[-there:] + borrowed).decode("utf-8", "ignore") if missing else ""
        return borrowed if len(whole) == 1 else b""

    def _carries(self, token: int, own: bytes) -> None:
        """Note how many bytes of the following tokens this one shows, or that it is unfinished."""
        borrowed = len(self._borrow(token, own))
        if not borrowed and missing_bytes(own)[1] and token + 3 >= self._total:
            if self._open is None:
                self._open, self._open_total = token, self._total
            return
        while borrowed:
            token += 1
            taken = min(borrowed, len(self._fetch(token)[0]))
            self._carry.append(taken)
            borrowed -= taken

    def _lay_one(self, token: int) -> None:
        piece, special = self._fetch(token)
        skip = self._carry.pop(0) if self._carry else 0
        self._skip.append(skip)
        if piece and piece[-1] >= 0x80 and not special:
            self._carries(token, piece[skip:])
        self._token_line.append(self.lines - 1)
        self.count += 1
        text = self._show(token, piece, special)
        if not text:
            return
        if self._x == 0 or special or text[0] in (SPACE, NEWLINE) or self._after_special(token):
            self._break = token
        first, *rest = text.split("\n")
        width = cell_len(first)
        if self._x and self._x + width > self.width:
            self._wrap_before(token)
        self._put(token, 0, first, width)
        offset = len(first)
        for part in rest:
            offset += 1
            self._new_line(token, offset)
            self._put(token, offset, part, cell_len(part))
            offset += len(part)

    def _after_special(self, token: int) -> bool:
        return token > 0 and self._fetch(token - 1)[1]

    def _wrap_before(self, token: int) -> None:
        """A new line for this token, together with the beginning of its word if that is short."""
        line = self.lines - 1
        start = self._break
        moved = sum(cell_len(self.text(k)) for k in range(start, token)) if start < token else 0
        begins_line = start == self._line_token[line] or start < self._line_token[line]
        if begins_line or moved > self.width // 3:
            start, moved = token, 0
        self._new_line(start, 0)
        for k in range(start, token + 1):
            self._token_line[k] = self.lines - 1
        self._x = moved

    def _put(self, token: int, offset: int, part: str, width: int) -> None:
        """Text that begins at `offset` of the token, broken anywhere when it is too wide."""
        if self._x + width <= self.width:
            self._x += width
            return
        for index, char in enumerate(part):
            cells = get_character_cell_size(char)
            if self._x + cells > self.width:
                self._new_line(token, offset + index)
            self._x += cells

    def _new_line(self, token: int, offset: int) -> None:
        self._line_token.append(token)
        self._line_offset.append(offset)
        self._x = 0
        self._break = token

    def line(self, number: int) -> list[tuple[int, SafeText]]:
        """A line's parts: token and the part of its text that lies on the line."""
        if not 0 <= number < self.lines:
            return []
        token, offset = self._line_token[number], self._line_offset[number]
        if number + 1 < self.lines:
            last, end = self._line_token[number + 1], self._line_offset[number + 1]
        else:
            last, end = self.count, 0
        parts: list[tuple[int, SafeText]] = []
        while token < self.count and (token < last or (token == last and end)):
            text = self.text(token)
            part = text[offset : end if token == last else None].rstrip("\n")
            if part:
                parts.append((token, SafeText(part)))
            token, offset = token + 1, 0
        return parts
