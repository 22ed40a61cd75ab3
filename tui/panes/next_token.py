"""NEXT TOKEN: the distribution at the cursor as bars; while it is pending, a candidate to force.

Unpacks as many candidates as are drawn. Knows one step; nothing of other panes.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Final, Literal

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message

from engine_daemon.protocol.events import Stepped
from engine_daemon.protocol.values import CandidateRow
from engine_daemon.recording.rows import exp
from tui.keymap import Scope, bindings
from tui.panes.base import Line, Pane, empty, spread
from tui.text import DASH, SafeText, fit, percent, token, width
from tui.view import Detail
from tui.widgets.bars import bar
from tui.widgets.sampler_words import filter_words, sampler_words
from tui.widgets.top import Top

Unit = Literal["prob", "logprob", "logit"]
_UNITS: Final[tuple[Unit, ...]] = ("prob", "logprob", "logit")
_NARROW: Final = 46
"""Cells below which words are shortened."""
_FIXED: Final = 5 + 8 + 9
"""Cells of mark and number, raw and final value."""


class NextTokenPane(Pane):
    """Candidates in the model's order, raw and final, the chosen one marked."""

    TITLE: ClassVar[str] = "NEXT TOKEN"
    SCOPE: ClassVar[Scope | None] = "next"
    BINDINGS = bindings("next")

    class Forced(Message):
        """Append this candidate."""

        def __init__(self, token_id: int) -> None:
            super().__init__()
            self.token_id = token_id

    _highlight = 0
    _first = 0
    _unit: Unit = "prob"
    _rows = 1
    _of: tuple[object, int, bool] = (None, -1, False)
    _top: Top | None = None

    def draw(self, columns: int, rows: int) -> Sequence[Line]:
        """What the step is, the candidates, the rest, and the highlighted one in full."""
        detail = self.view.shown
        self.border_title, self.border_subtitle = self._title(detail, columns), ""
        if detail is None:
            return empty(SafeText(self._why_not()), columns, rows, self.palette)
        spare = 5 if rows >= 8 else 2
        chosen_row = self._pinned(detail, self._candidates(detail), columns)
        watched = self._watched(detail, columns, (rows - spare) // 2)
        top = self._scrolled(detail, rows - spare - bool(chosen_row) - len(watched))
        shown = top.rows(self._first, self._first + self._rows)
        self._frame(self._where(top), columns)
        lines: list[Line] = [self._figures(detail, columns), self._heading(columns)]
        for number, row in enumerate(shown, self._first):
            lines.append(self._row(detail, number, row, self._final(row), columns))
        lines += [chosen_row] if chosen_row else []
        if spare > 2:
            lines.append(self._rest(detail, top, shown, columns))
        lines += watched
        if spare > 2:
            room = rows - len(lines) - 1
            lines += [[] for _ in range(room)]
            if room > 1:
                words = f"{top.count} candidates (--candidates K for more)"
                lines[-1 - (room - 1) // 2] = [Segment(words, self.palette.muted)]
            lines.append(self._full(detail, top, columns))
        return lines[:rows]

    def _frame(self, where: str, columns: int) -> None:
        """A pending step says what it will be picked by: above, or below where there is room."""
        title, words = self._title(self.view.shown, columns), ""
        if self.view.on_pending:
            words = sampler_words(self.view.columns.sampler)
        above = f"{title} · {words}" if words else title
        if width(SafeText(above)) <= columns - 2:
            self.border_title, self.border_subtitle = above, where
            return
        below = f"{words} · {where}" if where else words
        fits = width(SafeText(below)) <= columns - 2
        self.border_title, self.border_subtitle = title, below if fits else words

    def _where(self, top: Top) -> str:
        """Which of the candidates are on screen, when not all are."""
        last = min(self._first + self._rows, top.count)
        return f"{self._first + 1}–{last} of {top.count}" if self._rows < top.count else ""

    def _candidates(self, detail: Detail) -> Top:
        key = (detail.predicted, detail.step, detail.stepped is None)
        if self._top is None or self._of[0] is not detail.predicted or self._of[1:] != key[1:]:
            self._of = key
            self._top = Top(detail.predicted.candidates, detail.predicted.logsumexp)
            self._highlight = self._first = 0
            if detail.stepped is not None:
                self._highlight = self._top.find(detail.stepped.id) or 0
        return self._top

    def _scrolled(self, detail: Detail, rows: int) -> Top:
        """The candidates, with the highlight among those of them that have room."""
        top = self._candidates(detail)
        self._rows = max(rows, 1)
        self._highlight = max(min(self._highlight, top.count - 1), 0)
        self._first = max(min(self._first, self._highlight), self._highlight - self._rows + 1, 0)
        return top

    def _title(self, detail: Detail | None, columns: int) -> str:
        step = self.view.at
        if detail is None:
            return self.TITLE
        if detail.stepped is not None:
            return f"{self.TITLE} · step {step}"
        title = f"{self.TITLE} · step {step} pending"
        if self.view.resident:
            return title
        whole, shorter = f"{title}, recorded", f"{self.TITLE} · step {step} recorded"
        return whole if width(SafeText(whole)) <= columns - 2 else shorter

    def _why_not(self) -> str:
        view = self.view
        if view.session is None:
            return DASH
        if view.over:
            return f"{DASH} not recorded"
        if view.columns.status == "waiting":
            return "The first distribution is not there yet"
        return f"{DASH} asking for step {view.at}" if view.wanted else f"{DASH} not recorded"

    # Rows -------------------------------------------------------------------------------------

    def _figures(self, detail: Detail, columns: int) -> Line:
        predicted, palette = detail.predicted, self.palette
        wide = columns >= _NARROW
        left = [
            Segment("entropy " if wide else "H ", palette.muted),
            Segment(f"{predicted.entropy_bits:.2f} bits", palette.entropy),
            Segment("  margin ", palette.muted),
            Segment(percent(predicted.margin), palette.base),
        ]
        right = [Segment(f"position {predicted.position}", palette.muted)]
        return spread(left, right, columns, palette)

    def _sizes(self, columns: int) -> tuple[int, int]:
        """Cells of token and bar."""
        left = max(columns - _FIXED, 6)
        piece = min(max(left * 3 // 5, 6), 20)
        return piece, max(left - piece, 0)

    def _heading(self, columns: int) -> Line:
        piece, _ = self._sizes(columns)
        unit = {"prob": "raw p", "logprob": "log p", "logit": "logit"}[self._unit]
        overlay = self.view.shown_overlay
        last = "final" if overlay is None else overlay.heading
        words = f"   # {fit(SafeText('token'), piece)}{unit:>8}{last:>9}"
        return [Segment(fit(SafeText(words), columns), self.palette.muted)]

    def _row(
        self, detail: Detail, number: int, row: CandidateRow, final: SafeText, columns: int
    ) -> Line:
        palette = self.palette
        piece, room = self._sizes(columns)
        chosen = detail.stepped is not None and row.id == detail.stepped.id
        prob = prob_of(detail, row.logit)
        base = self._row_style(number, chosen, row)
        mark = "●" if chosen else "▸" if number == self._highlight else " "
        token_style = palette.special if row.special and base is palette.base else base
        name = fit(token(row.piece), piece)
        label = name.rstrip() or name
        values = fit(self._value(detail, row.logit), 8, right=True)
        values = SafeText(values + fit(final, 9, right=True))
        line = [
            Segment(f"{mark}{number + 1:>3} ", base),
            Segment(label, token_style),
            Segment(name[len(label) :] + values, base),
        ]
        if room > 2:
            line.append(Segment(" " + bar(prob, room - 1), palette.by_prob(prob)))
        return line

    def _row_style(self, number: int, chosen: bool, row: CandidateRow) -> Style:
        palette = self.palette
        if number == self._highlight and self.has_focus:
            return palette.row
        if chosen:
            return palette.chosen
        if number == self._highlight:
            return palette.row_quiet
        return palette.base if row.dropped_by.word is None else palette.dropped

    def _value(self, detail: Detail, logit: float) -> SafeText:
        if logit == -math.inf:
            return SafeText("masked")
        match self._unit:
            case "prob":
                return percent(prob_of(detail, logit))
            case "logprob":
                return SafeText(f"{logit - detail.predicted.logsumexp:.3f}")
            case "logit":
                return SafeText(f"{logit:.3f}")

    def _final(self, row: CandidateRow) -> SafeText:
        """What the pick used; 0 for a candidate that was dropped, and by what."""
        overlay = self.view.shown_overlay
        if overlay is not None:
            return overlay.cells.get(row.id, SafeText(DASH))
        word = filter_words(row.dropped_by)
        if row.final_logprob == -math.inf and word is not None:
            return SafeText(f"0 {word}")
        return percent(math.exp(min(row.final_logprob, 0.0)))

    def _pinned(self, detail: Detail, top: Top, columns: int) -> Line | None:
        """The chosen token when it is not among the candidates."""
        stepped = detail.stepped
        if stepped is None or top.find(stepped.id) is not None:
            return None
        piece, room = self._sizes(columns)
        prob = prob_of(detail, stepped.logit)
        final = percent(math.exp(min(stepped.final_logprob, 0.0)))
        if (overlay := self.view.shown_overlay) is not None:
            final = overlay.cells.get(stepped.id, SafeText(DASH))
        rank = f"{stepped.rank:>3} "
        words = f"●{rank}{fit(token(stepped.piece), piece + 4 - len(rank))}"
        words += fit(self._value(detail, stepped.logit), 8, right=True) + fit(final, 9, right=True)
        line = [Segment(fit(SafeText(words), columns - room), self.palette.chosen)]
        if room > 2:
            line.append(Segment(" " + bar(prob, room - 1), self.palette.by_prob(prob)))
        return line

    def _watched(self, detail: Detail, columns: int, most: int) -> list[Line]:
        """The watched tokens with probability and rank, wherever they stand in the order."""
        watched = detail.predicted.watched
        if watched is None:
            return []
        piece, room = self._sizes(columns)
        lines: list[Line] = []
        for row in watched.rows()[: max(most, 0)]:
            prob = prob_of(detail, row.logit)
            chosen = detail.stepped is not None and row.id == detail.stepped.id
            name = fit(token(row.piece), piece)
            rank = fit(SafeText(f"#{row.rank}"), 9, right=True)
            value = SafeText("masked") if row.logit == -math.inf else percent(prob)
            words = f"{'●' if chosen else ' '}  ◎ {name}{fit(value, 8, right=True)}{rank}"
            line = [Segment(words, self.palette.chosen if chosen else self.palette.accent)]
            if room > 2:
                line.append(Segment(" " + bar(prob, room - 1), self.palette.by_prob(prob)))
            lines.append(line)
        return lines

    def _rest(self, detail: Detail, top: Top, shown: Sequence[CandidateRow], columns: int) -> Line:
        """All that is on no row above: with those rows it makes 100 %."""
        piece, room = self._sizes(columns)
        stepped = detail.stepped
        pinned = stepped if stepped is not None and top.find(stepped.id) is None else None
        prob = top.beside(self._first, len(shown), detail.predicted.tail_prob)
        if pinned is not None:
            prob = max(prob - prob_of(detail, pinned.logit), 0.0)
        if prob:
            value = self._value(detail, detail.predicted.logsumexp + math.log(prob))
        else:
            value = percent(0.0) if self._unit == "prob" else SafeText(DASH)
        name = SafeText("the rest" if piece >= 8 else "rest")
        overlay, last = self.view.shown_overlay, "ties cut" if detail.predicted.ties_cut else ""
        if overlay is not None and overlay.draws:
            last = overlay.rest([one.id for one in (*shown, pinned) if one is not None])
        line = [
            Segment(f"   … {fit(name, piece)}", self.palette.muted),
            Segment(fit(value, 8, right=True), self.palette.muted),
            Segment(f"{last:>9}", self.palette.muted),
        ]
        if room > 2:
            line.append(Segment(" " + bar(prob, room - 1), self.palette.muted))
        return line

    def _full(self, detail: Detail, top: Top, columns: int) -> Line:
        """What is to be said of the highlighted candidate, as much as fits whole."""
        overlay = self.view.shown_overlay
        if overlay is not None:
            return [Segment(overlay.note(columns), self.palette.accent)]
        row = top.row(self._highlight)
        if row is None:
            return []
        stepped = detail.stepped
        parts = [f"id {row.id}"]
        if stepped is not None and stepped.id == row.id:
            parts.append(stepped.how)
            parts += _drawn(stepped, columns - len(" · ".join(parts)) - 3)
        elif self.has_focus and self.view.forcible:
            parts.append("enter forces it" if stepped is None else "enter: a branch with it")
        parts += [f"logit {row.logit:.2f}", row.piece[:16].hex(" ") or DASH]
        while len(parts) > 1 and len(" · ".join(parts)) > columns:
            parts.pop()
        return [Segment(" · ".join(parts), self.palette.muted)]

    # Keys -------------------------------------------------------------------------------------

    def _move(self, rows: int) -> None:
        self._highlight = max(self._highlight + rows, 0)
        self.refresh_from()

    def action_row_up(self) -> None:
        """Highlight the candidate above."""
        self._move(-1)

    def action_row_down(self) -> None:
        """Highlight the candidate below."""
        self._move(1)

    def action_rows_up(self) -> None:
        """Highlight one page up."""
        self._move(-self._rows)

    def action_rows_down(self) -> None:
        """Highlight one page down."""
        self._move(self._rows)

    def action_unit(self) -> None:
        """The next unit of the raw column."""
        self._unit = _UNITS[(_UNITS.index(self._unit) + 1) % len(_UNITS)]
        self.refresh_from()

    def action_force(self) -> None:
        """Ask for the highlighted candidate to be appended."""
        detail = self.view.shown
        row = None if detail is None else self._candidates(detail).row(self._highlight)
        if row is not None:
            self.post_message(self.Forced(row.id))

    def on_focus(self) -> None:
        """The highlight shows that enter would act."""
        self.refresh_from()

    def on_blur(self) -> None:
        """The highlight is quiet again."""
        self.refresh_from()

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        """Highlight three up."""
        self._move(-3)

    def on_mouse_scroll_down(self, _event: events.MouseScrollDown) -> None:
        """Highlight three down."""
        self._move(3)

    def on_click(self, event: events.Click) -> None:
        """Highlight the row under the mouse."""
        offset = event.get_content_offset(self)
        if offset is not None and 2 <= offset.y < 2 + self._rows:
            self._highlight = self._first + offset.y - 2
            self.refresh_from()


def prob_of(detail: Detail, logit: float) -> float:
    """The raw probability of a logit of this step."""
    return math.exp(min(logit - detail.predicted.logsumexp, 0.0))


def _drawn(stepped: Stepped, room: int) -> list[str]:
    """The draw, and where there is room the interval of final probabilities that it fell in."""
    if stepped.draw is None:
        return []
    told = f"u {stepped.draw:.4f}"
    if stepped.before is None:
        return [told]
    end = min(1.0, stepped.before + exp(stepped.final_logprob))
    long = f"{told} in {stepped.before:.3f}-{end:.3f}"
    return [long if len(long) <= room else told]
