"""The whole screen in a few short lines, for terminals too small for panes.

Knows the view; stands in for every pane there, and is where candidates are chosen.
"""

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment

from tui.panes.base import Line, spread
from tui.panes.next_token import NextTokenPane, prob_of
from tui.text import SafeText, clip, fit, percent, show, token, width


class Glance(NextTokenPane):
    """State, the end of the text, and the likeliest candidates, with the keys of NEXT TOKEN."""

    TITLE: ClassVar[str] = ""

    def draw(self, columns: int, rows: int) -> Sequence[Line]:
        """One row of state, one of text, the rest candidates."""
        left = [Segment(clip(self._state(), columns), self.palette.title)]
        return [
            spread(left, self._entropy(), columns, self.palette),
            [Segment(self._tail(columns), self.palette.base)],
            *self._listed(columns, max(rows - 2, 0)),
        ][:rows]

    def _entropy(self) -> Line:
        detail = self.view.shown
        if detail is None:
            return []
        return [Segment(f"{detail.predicted.entropy_bits:.2f} bits", self.palette.entropy)]

    def _state(self) -> SafeText:
        """One thing: what is in the way, or where the session stands."""
        view, engine = self.view, self.view.engine
        if not view.link:
            return SafeText("link lost")
        if view.replay is not None:
            return SafeText(f"replay · step {view.at}")
        if engine is not None and engine.word not in ("ready", "busy"):
            return SafeText(f"engine {engine.word}")
        if view.session is None:
            return SafeText("no session: ^n")
        return SafeText(f"{view.columns.status} · step {view.at}")

    def _tail(self, columns: int) -> SafeText:
        """The end of the text that fits, cut on the left."""
        end = self.view.length
        raw = b"".join(self.view.token(k)[0] for k in range(max(end - columns, 0), end))
        shown = show(raw)[-columns:]
        while width(shown) > columns:
            shown = shown[1:]
        return SafeText(shown)

    def _listed(self, columns: int, rows: int) -> list[Line]:
        detail = self.view.shown
        if detail is None or rows <= 0:
            return []
        top = self._scrolled(detail, rows)
        lines: list[Line] = []
        for number, row in enumerate(top.rows(self._first, self._first + rows), self._first):
            value = percent(prob_of(detail, row.logit))
            chosen = detail.stepped is not None and detail.stepped.id == row.id
            name = fit(token(row.piece), max(columns - len(value) - 2, 1))
            mark = "●" if chosen else "▸" if number == self._highlight else " "
            lines.append([Segment(f"{mark}{name} {value}", self._row_style(number, chosen, row))])
        return lines
