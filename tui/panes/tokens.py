"""TOKENS: one token a line, with what is known of it.

Draws the lines around the cursor from the columns. Knows nothing of candidates.
"""

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events

from engine_daemon.recording.rows import NO_ID
from tui.keymap import Scope, bindings
from tui.panes.base import Line, Pane, empty
from tui.pieces import piece_or_mark
from tui.restoring import mark_of_row
from tui.text import DASH, SafeText, fit, percent, token

_HEAD = ("step", "id", "token", "p", "rank", "entropy", "pick", "ms", "bytes")
_WIDTHS = (5, 6, 15, 7, 5, 7, 7, 6, 11)
_LEAST = 6
"""Cells from which on the last column, the bytes, is worth showing."""
_RIGHT = (True, True, False, True, True, True, False, True, False)


class TokensPane(Pane):
    """id · piece · probability · rank · entropy · how it was picked · time · bytes."""

    TITLE: ClassVar[str] = "TOKENS"
    SLOW_S: ClassVar[float] = 0.1
    SCOPE: ClassVar[Scope | None] = "tokens"
    BINDINGS = bindings("tokens")

    _top = 0

    def draw(self, columns: int, rows: int) -> Sequence[Line]:
        """A heading and the rows around the cursor."""
        view = self.view
        if not view.length:
            return empty(SafeText("No tokens yet"), columns, rows, self.palette)
        body = max(rows - 1, 1)
        at = min(len(view.prompt) + view.at, view.length - 1)
        self._top = max(min(self._top, at, view.length - body), at - body + 1, 0)
        shown = range(self._top, min(self._top + body, view.length))
        head = self._cells([SafeText(word) for word in _HEAD], columns)
        self.border_subtitle = f"{at + 1} of {view.length}" if view.length > body else ""
        lines: list[Line] = [[Segment(head, self.palette.muted)]]
        return [*lines, *(self._row(index, index == at, columns) for index in shown)][:rows]

    def _row(self, index: int, selected: bool, columns: int) -> Line:
        prompt = len(self.view.prompt)
        step = index - prompt
        cells = self._prompt_cells(index) if step < 0 else self._step_cells(step)
        text = self._cells(cells, columns)
        if selected and step >= 0:
            return [Segment(fit(text, columns), self._cursor)]
        if step < 0:
            return [Segment(text, self.palette.prompt)]
        return self._coloured(step, text)

    @property
    def _cursor(self) -> Style:
        return self.palette.cursor if self.has_focus else self.palette.row_quiet

    def _coloured(self, step: int, text: SafeText) -> Line:
        """The row with its probability in the colour of its size."""
        store = self.view.columns
        base = self.palette.base
        if store.how(step) == "forced":
            base = self.palette.forced
        before = sum(_WIDTHS[:3]) + 3
        if len(text) < before + _WIDTHS[3]:
            return [Segment(text, base)]
        token_cells = sum(_WIDTHS[:2]) + 2
        special = self.palette.special if store.special(step) else base
        if store.ids[step] == NO_ID:
            special = self.palette.error
        piece = token(piece_or_mark(store, step))
        shown = fit(piece, _WIDTHS[2])
        start = text[:token_cells]
        rest = text[token_cells + len(shown) :]
        mark = shown.rstrip()
        return [
            Segment(start, base),
            Segment(mark, special),
            Segment(shown[len(mark) :], base),
            Segment(rest[: _WIDTHS[3] + 1], self.palette.by_prob(store.prob[step])),
            Segment(rest[_WIDTHS[3] + 1 :], base),
        ]

    def _prompt_cells(self, index: int) -> list[SafeText]:
        row = self.view.prompt[index]
        gone = SafeText(DASH)
        prob, rank = self.view.prompt_score(index)
        word = SafeText("added" if row.added else "prompt")
        return [
            SafeText("·"),
            SafeText(str(row.id)),
            token(row.piece),
            percent(prob),
            SafeText(str(rank) if rank else DASH),
            gone,
            word,
            gone,
            _hex(row.piece),
        ]

    def _step_cells(self, step: int) -> list[SafeText]:
        store = self.view.columns
        entropy = store.entropy[step]
        spent = store.total_ms[step]
        lost = store.ids[step] == NO_ID
        return [
            SafeText(str(step)),
            SafeText(DASH if lost else str(store.ids[step])),
            token(piece_or_mark(store, step)),
            percent(store.prob[step]),
            SafeText(str(store.rank[step]) if store.rank[step] else DASH),
            SafeText(DASH if entropy != entropy else f"{entropy:.2f}"),
            SafeText(DASH if lost else store.how(step)),
            SafeText(DASH if spent != spent else f"{self._mark(step)}{spent:.1f}"),
            _hex(store.piece(step)),
        ]

    def _mark(self, step: int) -> str:
        """Says that a time is no plain step's."""
        store = self.view.columns
        return mark_of_row(step, store.processed[step], store.flags[step])

    def _cells(self, cells: list[SafeText], columns: int) -> SafeText:
        """As many columns as fit whole; the last one takes the room that is left."""
        parts: list[SafeText] = []
        left = columns
        for cell, size, right in zip(cells, _WIDTHS, _RIGHT, strict=True):
            last = len(parts) == len(_WIDTHS) - 1
            if left < (_LEAST if last else size + 1):
                break
            parts.append(fit(cell, left if last else size, right=right))
            left -= size + 1
        return SafeText(" ".join(parts))

    # Cursor -----------------------------------------------------------------------------------

    def _move(self, steps: int) -> None:
        self.post_message(self.Looked(self.view.at + steps))

    def action_token_up(self) -> None:
        """Cursor one token back."""
        self._move(-1)

    def action_token_down(self) -> None:
        """Cursor one token on."""
        self._move(1)

    def action_tokens_up(self) -> None:
        """Cursor one page back."""
        self._move(-max(self.size.height - 2, 1))

    def action_tokens_down(self) -> None:
        """Cursor one page on."""
        self._move(max(self.size.height - 2, 1))

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        """Cursor three tokens back."""
        self._move(-3)

    def on_mouse_scroll_down(self, _event: events.MouseScrollDown) -> None:
        """Cursor three tokens on."""
        self._move(3)

    def on_click(self, event: events.Click) -> None:
        """Cursor to the token under the mouse."""
        offset = event.get_content_offset(self)
        if offset is not None and offset.y > 0:
            self.post_message(self.Looked(self._top + offset.y - 1 - len(self.view.prompt)))


def _hex(raw: bytes) -> SafeText:
    return SafeText(raw[:32].hex(" "))
