"""Leaving a session before its end: ask for a pause, and know when to stop waiting for it.

Knows the rules of a pause; prints nothing.
"""

import asyncio
import contextlib
from typing import Final

from engine_daemon.client import DaemonClient
from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.commands import Pause

QUIET_S: Final = 0.25
"""A pause that finds the session standing leaves no event: so long is waited for one."""
PATIENCE_S: Final = 10.0
"""So long a step under way is waited for; who sent SIGTERM sends SIGKILL some time after."""


class Leave:
    """The wish to leave: a pause is asked for, and then waited for."""

    def __init__(self, client: DaemonClient, session: str) -> None:
        self.code = Exit.DONE
        self.pause_logged = False
        self._client = client
        self._session = session
        self._task: asyncio.Task[None] | None = None
        self._answered: float | None = None

    @property
    def wanted(self) -> bool:
        """Somebody wants to leave."""
        return self._task is not None

    def begin(self, code: Exit) -> bool:
        """Ask for the pause; False when that was done already."""
        if self._task is not None:
            return False
        self.code, self.pause_logged = code, False
        self._task = asyncio.create_task(self._pause())
        return True

    async def _pause(self) -> None:
        # Closed meanwhile, or the link is lost: both are told by the log and the client.
        with contextlib.suppress(InspectError):
            await self._client.command(Pause(), self._session)
        self._answered = asyncio.get_running_loop().time()

    def pointless(self, status: str, has_engine: bool, stuck: bool) -> bool:
        """No `Stopped` will follow soon: it stands already, its model is still loading, or the
        engine does not move. Whoever wants to leave leaves then; the pause stays asked for."""
        if self._answered is None:
            return False
        if stuck or (status == "waiting" and not has_engine):
            return True
        waited = asyncio.get_running_loop().time() - self._answered
        quiet = waited > QUIET_S and not self.pause_logged and status != "running"
        return quiet or waited > PATIENCE_S

    async def forget(self) -> None:
        """Leave no task behind."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
