"""Interrupts of an asyncio task: none is lost, and none comes at the wrong moment.

Knows one task and its loop; nothing of what is left behind.
"""

import asyncio
import signal
from collections.abc import Callable


class Interrupts:
    """Interrupts of the running task, none of them lost.

    Until `hold` one cancels the task; from then on it is kept for `lead_to`.
    """

    def __init__(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self.came = False
        self._then: Callable[[], object] | None = task.cancel
        loop.add_signal_handler(signal.SIGINT, self._came)

    def _came(self) -> None:
        self.came = True
        if self._then is not None:
            self._then()

    def hold(self) -> None:
        """Something is about to be left behind: finish, then look."""
        if self.came:
            raise asyncio.CancelledError
        self._then = None

    def lead_to(self, then: Callable[[], object]) -> None:
        """What to do from here on; done at once when one was held back."""
        self._then = then
        if self.came:
            then()
