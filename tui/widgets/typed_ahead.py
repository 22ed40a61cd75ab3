"""Text that is typed before a dialog's line has the focus.

Over a slow link the key that opens a dialog and what follows it come together; what follows goes to
whatever had the focus until then. Knows keys and lines; nothing of what they are for.
"""

from typing import ClassVar

from textual import events
from textual.screen import Screen
from textual.widgets import Input, TextArea


class TypedAhead:
    """A dialog into whose line all text goes that nothing else takes. `LINE` selects it."""

    LINE: ClassVar[str] = "Input"


def take_typed(screen: Screen[object], event: events.Key) -> None:
    """Put a character into the line of the dialog on top, unless something else has the focus."""
    if not isinstance(screen, TypedAhead) or not event.is_printable or event.character is None:
        return
    line = screen.query_one(screen.LINE)
    if screen.focused not in (None, line):
        return
    event.stop()
    event.prevent_default()
    if isinstance(line, Input):
        line.insert_text_at_cursor(event.character)
    elif isinstance(line, TextArea):
        line.insert(event.character)
