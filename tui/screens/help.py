"""Help: every action and key, made from the one table.

Knows the table; nothing of what is on the screens.
"""

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.keymap import SCOPES, Action, in_scope, key_name

_MARKS = (
    ("● chosen", "the token that was picked at this step"),
    ("▸ highlight", "the candidate that enter forces at the pending step"),
    ("raw p", "the model's own probability; all of them add up to 100 %"),
    ("final", "what the pick used, after the sampler; 0 with the filter that dropped it"),
    ("shade", "the less probable a token, the stronger its ground; below 10 % underlined"),
    ("· ␣ ⏎ ⇥", "space in running text, space in lists, newline, tab"),
    ("<E2 98>", "bytes that are no whole character yet"),
    ("–", "no value: not measured, or not there yet"),
)


class HelpScreen(ModalScreen[None]):
    """The list; any of escape, q, ? or enter leaves it."""

    BINDINGS = [("escape,q,question_mark,enter,f1", "dismiss", "close")]  # noqa: RUF012

    def compose(self) -> ComposeResult:
        """One block a scope, then the marks."""
        with VerticalScroll(id="help") as box:
            box.border_title = "HELP"
            box.border_subtitle = "esc closes"
            for scope, title in SCOPES.items():
                yield Static(Content(title), classes="help-title")
                yield Static(_block([_line(action) for action in in_scope(scope)]))
            yield Static(Content("What the marks mean"), classes="help-title")
            yield Static(_block(list(_MARKS)))


def _line(action: Action) -> tuple[str, str]:
    return " ".join(key_name(key) for key in action.keys), action.help


def _block(rows: list[tuple[str, str]]) -> Content:
    lines = [
        Content.assemble((f"  {left:<14}", "bold $accent"), Content(right)) for left, right in rows
    ]
    return Content("\n").join(lines)
