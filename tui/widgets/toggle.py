"""A yes-or-no field that shows its state as a mark, not as a colour.

Knows nothing of what it decides.
"""

from textual.binding import Binding
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from tui.text import SafeText


class Toggle(Widget, can_focus=True):
    """`[x] label  hint`; space or a click changes it."""

    BINDINGS = [Binding("space", "flip", "change", show=False)]  # noqa: RUF012  Textual declares it

    value: reactive[bool] = reactive(False)

    class Changed(Message):
        """It has another value now."""

        def __init__(self, toggle: "Toggle") -> None:
            super().__init__()
            self.toggle = toggle

    def __init__(self, label: SafeText, hint: SafeText, value: bool, toggle_id: str) -> None:
        super().__init__(id=toggle_id)
        self._label = label
        self._hint = hint
        self.set_reactive(Toggle.value, value)

    def render(self) -> Content:
        """Mark, label, hint."""
        mark = "[x]" if self.value else "[ ]"
        return Content.assemble((f"{mark} {self._label}", "bold"), ("   " + self._hint, "$muted"))

    def action_flip(self) -> None:
        """The other value."""
        self.value = not self.value
        self.post_message(self.Changed(self))

    def on_click(self) -> None:
        """As space does."""
        self.action_flip()
