"""What the main screen does about forwards without a cache and about the weights.

A part of the main screen in a file of its own; what an intent sends is in `control`.
"""

from typing import Any

from tui.control import Control
from tui.screens.arranging import where_hidden
from tui.screens.telling import Telling


class Measuring(Telling):
    """Actions of the main screen, which has the rest of these."""

    _do: Any
    """Sends an intent in a worker of the screen."""

    def _ready(self) -> Control | None:
        raise NotImplementedError

    def _take_count(self) -> int:
        raise NotImplementedError

    def action_measure_naive(self) -> None:
        """One real forward without cache up to the cursor; a count: at so many lengths."""
        count = self._take_count()
        if control := self._ready():
            self._do(self._measure(control, count))

    async def _measure(self, control: Control, count: int) -> str | None:
        await control.measure_naive(count)
        hidden = where_hidden(self, "cost")
        return f"forwards without cache are measured · {hidden}" if hidden else None

    def action_check_weights(self) -> None:
        """Are the parameters in memory still what was loaded?"""
        self._take_count()
        if control := self._ready():
            self._do(control.check_weights())
