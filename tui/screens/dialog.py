"""What every dialog over the main screen is.

Knows nothing of what a dialog asks.
"""

from typing import Final, TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

from tui.screens.settled import Settled

Given = TypeVar("Given")
_ASIDE: Final = 1000
"""More than a terminal is wide: of two rows the nearer one counts, whatever its columns."""


class Dialog(Settled, ModalScreen[Given]):
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

    def action_field_up(self) -> None:
        """To the field above; a text of several lines uses the key itself."""
        self._go(-1)

    def action_field_down(self) -> None:
        """To the field below."""
        self._go(1)

    def _go(self, way: int) -> None:
        here = self.focused
        if here is None:
            return
        at = here.region
        fields = [one for one in self.focus_chain if (one.region.y - at.y) * way > 0]
        if fields:
            near = min(
                fields, key=lambda one: abs(one.region.y - at.y) * _ASIDE + abs(one.region.x - at.x)
            )
            near.focus()
