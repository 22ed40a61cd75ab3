"""A line to type or paste into, of which nothing is lost without a word.

Textual's own keeps the first line of a pasted text, and none of one that is too long.
"""

from textual import events
from textual.message import Message
from textual.widgets import Input


class Line(Input):
    """Lines that are pasted are joined by spaces; what is beyond `max_length` is told of."""

    class Clipped(Message):
        """The end of a pasted text had no room."""

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        text = " ".join(event.text.splitlines())
        start, end = sorted(self.selection)
        room = len(text)
        if self.max_length:
            room = max(self.max_length - (len(self.value) - (end - start)), 0)
        if len(text) > room:
            self.post_message(self.Clipped())
        self.replace(text[:room], start, end)
