"""A client's updates with a time limit: waiting for the next ones can be given up and taken up.

(Cancelling the wait inside an async generator would end the generator.)
"""

import asyncio

from engine_daemon.client import DaemonClient, Update


class Updates:
    """`await updates.next(0.2)`: what came, or None when nothing did in time."""

    def __init__(self, client: DaemonClient) -> None:
        self._updates = client.updates()
        self._next: asyncio.Future[list[Update]] | None = None

    async def next(self, limit_s: float | None = None) -> list[Update] | None:
        """The next updates; raises what the client raises."""
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._updates))
        done, _ = await asyncio.wait([self._next], timeout=limit_s)
        if not done:
            return None
        updates, self._next = self._next.result(), None
        return updates

    async def close(self) -> None:
        """Wait for nothing any more."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
