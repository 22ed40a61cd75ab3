"""The whole screen in a few short lines, for terminals too small for panes.

Knows the view; stands in for every pane there.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment

from tui.panes.base import Line, Pane
from tui.text import SafeText, clip, fit, percent, show, token, width
from tui.widgets.top import Top


class Glance(Pane):
    """State, the end of the text, and the likeliest candidates."""

    FOCUSABLE: ClassVar[bool] = False

    def draw(self, columns: int, rows: int) -> Sequence[Line]:
        """One row of state, one of text, the rest candidates."""
        lines: list[Line] = [
            [Segment(clip(self._state(), columns), self.palette.title)],
            [Segment(self._tail(columns), self.palette.base)],
        ]
        return [*lines, *self._candidates(columns, rows - 2)][:rows]

    def _state(self) -> SafeText:
        """One thing: what is in the way, or where the session stands."""
        view, engine = self.view, self.view.engine
        if not view.link:
            return SafeText("link lost")
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

    def _candidates(self, columns: int, rows: int) -> list[Line]:
        detail = self.view.shown
        if detail is None or rows <= 0:
            return []
        top = Top(detail.predicted.candidates, detail.predicted.logsumexp)
        lines: list[Line] = []
        for row in top.rows(0, rows):
            value = percent(math.exp(min(row.logit - detail.predicted.logsumexp, 0.0)))
            chosen = detail.stepped is not None and detail.stepped.id == row.id
            name = fit(token(row.piece), max(columns - len(value) - 2, 1))
            style = self.palette.chosen if chosen else self.palette.base
            lines.append([Segment(f"{'●' if chosen else ' '}{name} {value}", style)])
        return lines
