"""Text that is typed before a line has the focus.

Over a slow link the key that opens a dialog, or goes to its next line, and what follows it come
together; what follows goes to whatever had the focus until then. Knows keys and lines; nothing of
what they are for.
"""

from typing import ClassVar

from textual import events
from textual.screen import Screen
from textual.widgets import Input


class TypedAhead:
    """A dialog into whose line all text goes that nothing else takes. `LINE` selects it."""

    LINE: ClassVar[str] = "Input"


def take_typed(screen: Screen[object], event: events.Key) -> None:
    """Put a character that nothing took into the line it was meant for: the one that has the focus
    by now (it would have taken it), or that of the dialog on top, where nothing has it yet."""
    if not event.is_printable or event.character is None:
        return
    line = screen.focused
    if line is None and isinstance(screen, TypedAhead):
        line = screen.query_one(screen.LINE)
    if line is None:
        return
    from textual.widgets import TextArea  # 10 ms of a start that no form is open in

    if isinstance(line, Input):
        line.insert_text_at_cursor(event.character)
    elif isinstance(line, TextArea):
        line.replace(event.character, *line.selection, maintain_selection_offset=False)
    else:
        return
    event.stop()
    event.prevent_default()
