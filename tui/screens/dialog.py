"""What every dialog over the main screen is.

Knows nothing of what a dialog asks.
"""

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

Given = TypeVar("Given")


class Dialog(ModalScreen[Given]):
    """A dialog that is answered once. Tiny: it has the whole terminal; narrow: no room for hints
    beside fields; middle: for short ones only."""

    # Textual declares both as plain lists.
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-tiny-w"),
        (60, "-narrow"),
        (78, "-middle"),
        (100, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [(0, "-tiny-h"), (16, "-small-h")]  # noqa: RUF012

    def dismiss(self, result: Given | None = None) -> AwaitComplete:
        """Give the answer; a second one (a key that was pressed twice) is none."""
        return super().dismiss(result) if self.is_current else AwaitComplete()
