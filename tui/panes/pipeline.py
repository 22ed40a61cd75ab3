"""PIPELINE: the stages of a step with their times, the one that comes next lit.

Knows one step's times; nothing of tokens.
"""

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment

from engine_daemon.protocol.events import Predicted
from tui.panes.base import Line, Pane, empty, spread
from tui.restoring import KEPT, mark
from tui.text import DASH, SafeText, clip, millis, show_text, width
from tui.view import Detail

_ARROW = " ─▶ "
_FAST = "fast engine  "
"""Shown where the engine path is not plain and there is room; zoomed, the path itself, and how the
model was loaded."""


class PipelinePane(Pane):
    """`tokenize 0.2 ms ─▶ forward 13.1 ms ─▶ pick 0.3 ms ─▶ append 0.1 ms`."""

    TITLE: ClassVar[str] = "PIPELINE"
    SLOW_S: ClassVar[float] = 0.1
    FOCUSABLE: ClassVar[bool] = False

    def draw(self, columns: int, rows: int) -> Sequence[Line]:
        """One row of stages; what is beside them goes first when it gets narrow."""
        detail = self.view.shown
        if detail is None and self.view.session is None:
            return empty(
                SafeText("tokenize ─▶ forward ─▶ pick ─▶ append"), columns, rows, self.palette
            )
        stages: Line = []
        lit = self._lit(detail)
        for name, value in self._stages(detail):
            if stages:
                stages.append(Segment(_ARROW, self.palette.muted))
            stages.extend(self._stage(name, value, lit == name))
        if _cells(stages) > columns:
            stages = [Segment(part.text.replace(_ARROW, " ▸ "), part.style) for part in stages]
        beside = self._beside(detail)
        mark = Segment(_FAST, self.palette.muted)
        if self._path() and beside and _cells([*stages, mark, *beside]) < columns:
            beside = [mark, *beside]
        line = spread(stages, beside, columns, self.palette)
        if rows == 1:
            return [line]
        return [line, *self._more(detail, columns)][:rows]

    def _stage(self, name: str, value: SafeText, lit: bool) -> Line:
        if lit:
            return [Segment(f" {name} {value} ", self.palette.lit)]
        return [Segment(f"{name} ", self.palette.base), Segment(value, self.palette.muted)]

    def _stages(self, detail: Detail | None) -> list[tuple[str, SafeText]]:
        """Each with its time, a dash where there is none."""
        if detail is None:
            return [(name, millis(None)) for name in ("tokenize", "forward", "pick", "append")]
        predicted, stepped = detail.predicted, detail.stepped
        prompt = self.view.columns.prompt
        first = detail.step == 0
        tokenize = predicted.tokenize_ms or (prompt.tokenize_ms if prompt and first else None)
        return [
            ("tokenize", millis(tokenize or None)),
            ("forward", _forward(detail)),
            ("pick", millis(None if stepped is None else stepped.pick_ms)),
            ("append", millis(None if stepped is None else stepped.append_ms)),
        ]

    def _lit(self, detail: Detail | None) -> str:
        """The stage the head is in or stands before; none for a step of the past."""
        view = self.view
        engine = view.engine
        works = engine is not None and engine.word in ("ready", "busy") and view.replay is None
        if not view.at_head or not view.link or not works:
            return ""
        if view.running or view.columns.place.kind == "prefill":
            return "forward"
        if view.columns.status == "waiting":
            return "tokenize" if view.columns.prompt is None else "forward"
        return "pick" if detail is not None and view.on_pending else ""

    def _beside(self, detail: Detail | None) -> Line:
        if detail is None:
            return []
        predicted = detail.predicted
        total = (
            DASH if detail.stepped is None else f"{_mark(detail)}{millis(detail.stepped.total_ms)}"
        )
        return [
            Segment("probe ", self.palette.base),
            Segment(millis(predicted.probe_ms), self.palette.muted),
            Segment("  total ", self.palette.base),
            Segment(total, self.palette.muted),
        ]

    def _more(self, detail: Detail | None, columns: int) -> list[Line]:
        if detail is None:
            return []
        predicted = detail.predicted
        words = f"{predicted.phase}: {predicted.processed:,} positions read, ".replace(",", " ")
        words = f"{words}{predicted.position} before this one{self._path()}{_ranks(predicted)}"
        started = self.view.columns.engine
        notes = [] if started is None else started.notes
        return [
            [Segment(clip(SafeText(text), columns), self.palette.muted)]
            for text in (words, *map(show_text, notes))
        ]

    def _path(self) -> str:
        """What the engine computes with, when it is not simply the model."""
        started = self.view.columns.engine
        path = "plain" if started is None else started.model.engine_path
        return "" if path == "plain" else f" · engine {path}"


def _mark(detail: Detail) -> str:
    predicted = detail.predicted
    return mark(detail.step, predicted.processed, predicted.restored is not None)


def _forward(detail: Detail) -> SafeText:
    """The time of the forward; where the distribution was kept none ran, and none is told."""
    said = _mark(detail)
    if said == KEPT:
        return SafeText(f"{DASH} row kept")
    return SafeText(f"{said}{millis(detail.predicted.forward_ms)}")


def _ranks(predicted: Predicted) -> str:
    """How long the quickest and the slowest rank took, and how far they are apart."""
    if not predicted.ranks_ms:
        return ""
    least, most = min(predicted.ranks_ms), max(predicted.ranks_ms)
    ranks = len(predicted.ranks_ms)
    return f" · {ranks} ranks {millis(least)} to {millis(most)}, skew {millis(most - least)}"


def _cells(line: Line) -> int:
    return sum(width(part.text) for part in line)
