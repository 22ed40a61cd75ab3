"""A lost link, as a viewer hears of it, and having the way to another machine again.

Knows threads and texts; sockets are `link`'s, ssh is `remote`'s.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from engine_daemon.errors import InspectError


class LinkLost(msgspec.Struct, frozen=True):
    """The daemon cannot be reached; what is on screen is what was known then. `hint`: what brings
    it back, where that is more than waiting."""

    reason: str
    hint: str = ""


class LinkUp(msgspec.Struct, frozen=True):
    """The daemon answers again. `restarted`: it is another life of it (another epoch)."""

    restarted: bool


class Tunnel(Protocol):
    """What a daemon on another machine is reached through."""

    def lost(self, silent: bool) -> LinkLost:
        """What became of the link over it: `silent`, nothing comes any more; else it was cut."""
        ...

    def mend(self) -> None:
        """Have the way there again if it is lost; InspectError when it cannot be had now."""
        ...

    def close(self) -> None:
        """End it, also while it is mended in another thread."""
        ...


class Mender:
    """Mends `tunnel` when asked to, and says once each what stands in the way."""

    def __init__(self, tunnel: Tunnel) -> None:
        self._tunnel = tunnel
        self._told = ""

    async def lost(self, silent: bool) -> LinkLost:
        """What became of the link; the tunnel may look for a moment."""
        return await asyncio.to_thread(self._tunnel.lost, silent)

    async def mend(self, tell: Callable[[LinkLost], None]) -> None:
        """Return when the way is there; raises the tunnel's InspectError, and tells it if new."""
        try:
            await asyncio.to_thread(self._tunnel.mend)
        except asyncio.CancelledError:  # nobody waits any more: the thread shall not go on
            self._tunnel.close()
            raise
        except InspectError as error:
            if error.message != self._told:
                self._told = error.message
                tell(LinkLost(error.message, error.hint))
            raise
        self._told = ""
