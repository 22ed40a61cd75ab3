"""A screen that is laid out for one size of the terminal at a time.

Knows the sizes of a screen and of its application only.
"""

from textual import events
from textual.screen import Screen


class Settled:
    """For screens, before Textual's own base: what tells of a size that is past goes by.

    Laying a screen out tells the screen itself of its size again. When two sizes wait in its queue
    with something between them, each brings the other back: it is drawn for ever and hears no key.
    """

    def on_resize(self, event: events.Resize) -> None:
        """Of another size than the terminal has by now: the newer one is on its way."""
        if isinstance(self, Screen) and event.size != self.app.size:
            event.stop()
            event.prevent_default()
