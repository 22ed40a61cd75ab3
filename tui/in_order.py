"""Keys are acted on in the order in which they were pressed.

Textual hands a key to the widget with the focus at once, and looks for what it is bound to when it
comes back from there. Of keys that come together, as over a slow link, text would overtake
backspace, arrows and tab. So each one waits until the one before it has been all the way.
Knows messages; nothing of what a key does.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from textual import events
from textual.app import App
from textual.message import Message

PATIENCE_S: Final = 1.0
"""Whoever keeps a key for so long, or ended with it, holds up the next one no more."""


class Acted(Message):
    """Goes behind a key, the same way: when it is back, the key was."""


class InOrder:
    """The keys (and pasted texts) of `app` that are not acted on yet. `act` acts on one."""

    def __init__(self, app: App[Any], act: Callable[[events.Event], Awaitable[None]]) -> None:
        self._app = app
        self._act = act
        self._waiting: deque[events.Event] = deque()
        self._under_way: Acted | None = None
        self._patience: asyncio.TimerHandle | None = None

    async def take(self, event: events.Event) -> None:
        """Act on it when all before it are done."""
        self._waiting.append(event)
        if self._under_way is None:
            await self._go_on()

    async def back(self, behind: Message) -> None:
        """A key has been all the way, or is waited for no longer."""
        if behind is self._under_way:
            self._under_way = None
            if self._patience is not None:
                self._patience.cancel()
            await self._go_on()

    async def _go_on(self) -> None:
        while self._waiting and self._under_way is None:
            event = self._waiting.popleft()
            reader = self._app.focused or self._app.screen
            await self._act(event)
            behind = Acted()
            if event.is_forwarded and reader.post_message(behind):
                self._under_way = behind
                give_up = self._app.call_later
                loop = asyncio.get_running_loop()
                self._patience = loop.call_later(PATIENCE_S, give_up, self.back, behind)
