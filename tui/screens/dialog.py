"""What every dialog over the main screen is.

Knows nothing of what a dialog asks.
"""

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

Given = TypeVar("Given")


class Dialog(ModalScreen[Given]):
    """A dialog that is answered once."""

    def dismiss(self, result: Given | None = None) -> AwaitComplete:
        """Give the answer; a second one (a key that was pressed twice) is none."""
        return super().dismiss(result) if self.is_current else AwaitComplete()
