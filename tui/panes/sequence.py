"""SEQUENCE: the text so far, each token shaded by its probability, the cursor on one of them.

Lays out what is new only, of much of it a slice at a time between two keys, and draws what is
visible. Knows view and flow.
"""

import time
from collections.abc import Sequence
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content

from engine_daemon.recording.rows import NO_ID, Flag
from tui.acts import act_text
from tui.keymap import Scope, bindings
from tui.panes.base import Line, Pane, block, empty
from tui.text import SafeText, show_text, width
from tui.view import View
from tui.widgets.flow import Flow

_SLICE: Final = 2000
"""Tokens laid out at a time: some 5 ms."""
_BETWEEN_S: Final = 0.002
_REDRAWN_S: Final = 0.25
"""Between two pictures of a text that is not laid out to its end yet."""
_SPECIAL: Final = int(Flag.SPECIAL)
_FORCED: Final = int(Flag.FORCED)
_NO_SESSION: Final = (
    SafeText("No session yet"),
    SafeText(""),
    SafeText("^n  open one on a prompt"),
    SafeText("t   choose an open one"),
    SafeText("?   all keys"),
)


class SequencePane(Pane):
    """Running text. Up and down move the cursor by lines, a click puts it on a token."""

    TITLE: ClassVar[str] = "SEQUENCE"
    SCOPE: ClassVar[Scope | None] = "sequence"
    BINDINGS = bindings("sequence")

    def __init__(self, view: View, pane_id: str) -> None:
        super().__init__(view, pane_id)
        self._flow: Flow | None = None
        self._of: object = None
        self._top = 0
        self._looked_at: tuple[int, int] = (-1, -1)
        self._going_on = False

    # Layout -----------------------------------------------------------------------------------

    def _laid(self, columns: int) -> Flow:
        """The layout of the session on screen, a slice further than before."""
        if self._flow is None or self._of != self.view.path:
            self._flow, self._of, self._top = Flow(self.view.token, columns), self.view.path, 0
        if self._flow.width != max(columns, 4):
            self._flow.width = max(columns, 4)
            self._flow.clear()
        if not self._flow.lay(self.view.whole_length, _SLICE) and not self._going_on:
            self._going_on = True
            self.set_timer(_BETWEEN_S, self._lay_on)
        return self._flow

    def _lay_on(self) -> None:
        """Another slice, without a picture of each."""
        self._going_on = False
        columns, rows = self.size
        if not rows or not self.view.length:
            return
        self._laid(columns - 1)
        if not self._going_on or time.monotonic() - self._drawn_at > _REDRAWN_S:
            self.refresh_from()

    def _at_token(self, flow: Flow) -> int:
        """The token under the cursor; one past the end for the pending one."""
        return flow.owner(len(self.view.prompt) + self.view.at)

    def draw(self, columns: int, rows: int) -> Sequence[Line]:
        """The lines around the cursor."""
        if not self.view.length:
            return self._nothing(columns, rows)
        columns -= 1
        flow = self._laid(columns)
        at = self._at_token(flow)
        line = flow.line_of(at)
        last = max(flow.lines - rows, 0)
        if (at, flow.lines) != self._looked_at:
            self._looked_at = (at, flow.lines)
            self._top = min(max(self._top, line - rows + 1), line)
        self._top = max(min(self._top, last), 0)
        self.border_subtitle = Content(self._below(flow, rows))
        return [
            self._line(flow, number, at, columns) for number in range(self._top, self._top + rows)
        ]

    def _below(self, flow: Flow, rows: int) -> SafeText:
        """Who did what last, where there are others, and where one is in the text."""
        acts = self.view.columns.acts
        act = act_text(acts[-1]) if acts and self.view.others else SafeText("")
        return SafeText(" · ".join(filter(None, (act, self._where(flow, rows)))))

    def _where(self, flow: Flow, rows: int) -> str:
        if flow.lines <= rows:
            return ""
        return f"lines {self._top + 1}–{min(self._top + rows, flow.lines)} of {flow.lines}"

    def _nothing(self, columns: int, rows: int) -> Sequence[Line]:
        view = self.view
        if view.columns.rejected is not None:
            rejected = view.columns.rejected
            lines = [show_text(rejected.message), show_text(rejected.hint)]
            return [[Segment(line, self.palette.error)] for line in lines]
        if view.session is None and view.opening:
            return empty(SafeText("Opening …"), columns, rows, self.palette)
        if view.session is None:
            return block(_NO_SESSION, columns, rows, self.palette)
        words = "Reading the prompt …"
        if view.replay is not None:
            words = "The prompt is not in this recording yet"
        if view.over:
            words = "This recording ends before its prompt"
        return empty(SafeText(words), columns, rows, self.palette)

    # Drawing ----------------------------------------------------------------------------------

    def _line(self, flow: Flow, number: int, at: int, columns: int) -> Line:
        shown = self.view.length
        parts = [(token, part) for token, part in flow.line(number) if token < shown]
        line = [Segment(part, self._style(flow, token, at)) for token, part in parts]
        ends_here = number == flow.lines - 1 and flow.count >= self.view.length
        if ends_here and at >= self.view.length and not self.view.running:
            line.append(Segment("▏", self.palette.cursor))
        return line

    def _style(self, flow: Flow, token: int, at: int) -> Style:
        palette = self.palette
        if token == at:
            return palette.cursor
        step = token - len(self.view.prompt)
        if step < 0:
            if self.view.token(token)[1]:
                return palette.special
            prob = self.view.prompt_score(token)[0]
            if prob is not None:
                return palette.shaded(prob) + Style(color=palette.prompt.color)
            return palette.prompt_alt if token % 2 else palette.prompt
        columns = self.view.columns
        flags = columns.flags[step]
        if columns.ids[step] == NO_ID:
            return palette.error
        if flags & _SPECIAL:
            return palette.special
        style = palette.shaded(columns.prob[step])
        return style + palette.forced if flags & _FORCED else style

    # Cursor -----------------------------------------------------------------------------------

    def _move_lines(self, lines: int) -> None:
        flow = self._flow
        if flow is None:
            return
        at = self._at_token(flow)
        line = flow.line_of(at)
        x = sum(width(part) for token, part in flow.line(line) if token < at)
        target = line + lines
        if target < 0 or (target < line and self.view.at == 0):
            self._top = max(self._top + lines, 0)
            self.refresh_from()
            return
        found = self._token_at(flow, min(target, flow.lines - 1), x)
        past = target >= flow.lines
        self.post_message(self.Looked(self.view.head if past else found - len(self.view.prompt)))

    def _token_at(self, flow: Flow, line: int, x: int) -> int:
        for token, part in flow.line(line):
            x -= width(part)
            if x < 0:
                return token
        parts = flow.line(line)
        return parts[-1][0] if parts else flow.count

    def action_line_up(self) -> None:
        """Cursor to the line above."""
        self._move_lines(-1)

    def action_line_down(self) -> None:
        """Cursor to the line below."""
        self._move_lines(1)

    def action_page_up(self) -> None:
        """Cursor one page up."""
        self._move_lines(-max(self.size.height - 1, 1))

    def action_page_down(self) -> None:
        """Cursor one page down."""
        self._move_lines(max(self.size.height - 1, 1))

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        """Look further up; the cursor stays."""
        self._scroll(-3)

    def on_mouse_scroll_down(self, _event: events.MouseScrollDown) -> None:
        """Look further down; the cursor stays."""
        self._scroll(3)

    def _scroll(self, lines: int) -> None:
        self._top = max(self._top + lines, 0)
        self.refresh_from()

    def on_click(self, event: events.Click) -> None:
        """Cursor to the token under the mouse."""
        offset = event.get_content_offset(self)
        if offset is None or self._flow is None:
            return
        token = self._token_at(self._flow, self._top + offset.y, offset.x)
        if token >= len(self.view.prompt):
            self.post_message(self.Looked(token - len(self.view.prompt)))
