"""Help: every action and key, made from the one table, and what words and marks mean.

Knows the tables; nothing of what is on the screens.
"""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Grid, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from tui.glossary import GLOSSARY
from tui.keymap import SCOPES, Action, Scope, in_scope, key_name
from tui.pieces import UNKNOWN
from tui.restoring import KEPT, READ_AGAIN
from tui.screens.dialog import Dialog
from tui.widgets.plot import ABOVE, DOT, MARK, PAUSED, STOP

_MARKS = (
    ("● chosen", "the token that was picked at this step"),
    ("▸ highlight", "the candidate that enter forces at the pending step"),
    ("raw p", "the model's own probability; all of them add up to 100 %"),
    (
        "final",
        "what the pick used, after the sampler; 0 = dropped, by the filter beside it",
    ),
    ("<0.1 %", "more than nothing, less than 0.05 %"),
    ("ties cut", "the last candidate listed equals the first one left out"),
    ("shade", "the less probable a token, the stronger its ground"),
    ("underline", "a token of less than 10 %; with the terminal's own colours, of less than 25 %"),
    ("stripes", "prompt tokens: every other one on another ground, to show where they end"),
    ("␣ ⏎ ⇥", "space, newline, tab"),
    ("<E2 98>", "bytes that are no whole character yet"),
    (UNKNOWN, "a token that a damaged recording has lost"),
    ("–", "no value: not measured, or not there yet"),
    (f"{KEPT}0.6 ms", "no forward ran: the logits of the step were kept (`row kept`)"),
    (f"{READ_AGAIN}80 ms", "the forward read again what the cache did not hold any more"),
    ("tok/s", "in the first line: over the last 32 decode steps, other sessions' turns included"),
    ("probe", "time spent reading the distribution for this screen; no part of a plain decode"),
    (f"{DOT} measured", "a step's time, as measured"),
    (f"{MARK} no cache", "a forward without cache, measured; between two of them derived"),
    (
        f"{PAUSED} after a pause",
        "a step right after a pause; its time may differ for that alone, so it is kept apart",
    ),
    (
        f"{ABOVE} far off",
        "a step of more than four times those around it, say while the machine stood still: it"
        " stands above the axis with its time, and counts in no fit and no sum",
    ),
    (f"{STOP} breakpoint", "a step where a condition was true"),
    (
        "tokens held",
        "of the session's limit; the bar below it is that share, as `cache` is to breakpoints",
    ),
    ("growing", "cache bytes that the tokens held take up; they grow with each"),
    ("fixed", "cache bytes that do not grow: recurrent and convolution state"),
    (
        "sessions' logits",
        "rows of logits kept of past steps, of all sessions, in the host's memory",
    ),
    ("allocated", "all buffers held for the cache, used or not yet, and the tokens that fit in"),
)


class HelpScreen(Dialog[None]):
    """The list; any of escape, q, ? or enter leaves it."""

    BINDINGS = [  # noqa: RUF012  Textual declares it
        ("escape,q,question_mark,enter,f1", "dismiss", "close"),
        ("g,home", "scroll('home')", "first"),
        ("G,end", "scroll('end')", "last"),
        ("tab", "part(1)", "next part"),
        ("shift+tab", "part(-1)", "part before"),
        ("k,up", "scroll('up')", "up"),
        ("j,down", "scroll('down')", "down"),
        ("pageup", "scroll('page_up')", "page up"),
        ("pagedown,space", "scroll('page_down')", "page down"),
    ]

    def __init__(
        self, first: Sequence[Scope] = ("main",), unusable: frozenset[str] = frozenset()
    ) -> None:
        super().__init__()
        self._first = first
        self._unusable = unusable

    def compose(self) -> ComposeResult:
        """The keys of this screen, words and marks, then the keys of the others."""
        with VerticalScroll(id="help", can_focus=False) as box:
            box.border_title = "HELP"
            box.border_subtitle = "↑ ↓ g G scroll · tab next part · esc closes"
            yield from self._keys(self._first)
            yield from _part("What the words mean", GLOSSARY)
            yield from _part("What the marks mean", _MARKS)
            yield from self._keys([scope for scope in SCOPES if scope not in self._first])

    def _keys(self, scopes: Sequence[Scope]) -> ComposeResult:
        for scope in scopes:
            yield from _part(SCOPES[scope], [self._line(one) for one in self._actions(scope)])

    def _actions(self, scope: Scope) -> list[Action]:
        """Those of a scope; what another one before it does on the same name is not told twice."""
        before = self._first[: self._first.index(scope)] if scope in self._first else ()
        told = {action.name for other in before for action in in_scope(other)}
        return [action for action in in_scope(scope) if action.name not in told]

    def _line(self, action: Action) -> tuple[str, str]:
        words = f"not here: {action.help}" if action.id in self._unusable else action.help
        return " ".join(key_name(key) for key in action.keys), words

    def action_part(self, by: int) -> None:
        """To the title of the next part, or of the one before; round at the ends."""
        box = self.query_one("#help", VerticalScroll)
        places = [0, *(title.virtual_region.y for title in self.query(".help-title"))]
        del places[1]  # above the first one is its margin only
        top = round(box.scroll_y)
        wanted = [y for y in places if (y > top if by > 0 else y < top)]
        if top >= box.max_scroll_y and by > 0:
            wanted = []
        end = places[0] if by > 0 else places[-1]
        box.scroll_to(y=(wanted[0] if by > 0 else wanted[-1]) if wanted else end, animate=False)

    def action_scroll(self, how: str) -> None:
        """Up, down, a page, or to an end."""
        box = self.query_one("#help", VerticalScroll)
        getattr(box, f"scroll_{how}")(animate=False)


def _part(title: str, rows: Sequence[tuple[str, str]]) -> ComposeResult:
    """A title, then two columns; what is too long for the right one goes on inside it."""
    yield Static(Content(title), classes="help-title")
    with Grid(classes="help-rows"):
        for left, right in rows:
            yield Static(Content(left), classes="help-key")
            yield Static(Content(right))
