"""Who may attach, and as whom: protocol version, room, role; and who comes back after a lost link.

Knows what a viewer says at hello; no sockets.
"""

import logging
from collections.abc import Callable
from typing import Final

from engine_daemon.hub.sharing import Sharing
from engine_daemon.hub.viewers import Viewer
from engine_daemon.protocol import codec
from engine_daemon.protocol import commands as cmd

_SHOWN: Final = 64
"""Characters of a name that others choose."""

_log = logging.getLogger(__name__)


class Arrivals:
    """Lets viewers in, `most` of them. `holds`: whether the viewer of this id has a lease."""

    def __init__(
        self,
        viewers: dict[bytes, Viewer],
        most: int,
        sharing: Sharing,
        holds: Callable[[bytes], bool],
    ) -> None:
        self._viewers = viewers
        self._most = most
        self._sharing = sharing
        self._holds = holds
        self._left: dict[bytes, int] = {}
        self._warned = False

    def hello(self, route: bytes, uid: int, hello: cmd.Hello, now: float) -> Viewer | cmd.Refuse:
        """The viewer, from now on one of `viewers`; or why it is none."""
        if not hello.min <= codec.MAJOR <= hello.max:
            return _refuse("version", f"this daemon speaks protocol {codec.VERSION}")
        viewer = Viewer(
            route=route,
            who=hello.who[:_SHOWN],
            client=hello.client[:_SHOWN],
            role=self._sharing.role(uid, hello.want),
            heard=now,
            uid=uid,
            refilled=now,
        )
        before = self._viewers.get(route)
        if before is not None:  # who says hello twice is no other one
            viewer.tokens, viewer.refilled = before.tokens, before.refilled
            viewer.asks = before.asks
        known = self._resume(viewer, hello.resume) or before is not None
        if not known and len(self._viewers) >= self._most:
            return _refuse("full", f"{self._most} viewers are attached, which is the most")
        self._viewers[route] = viewer
        self._warn()
        return viewer

    def _resume(self, viewer: Viewer, earlier: bytes | None) -> bool:
        """A viewer whose link was lost comes back: it is the one it was, with what it holds."""
        if earlier is None:
            return False
        old = next((one for one in self._viewers.values() if one.id == earlier), None)
        uid = self._left.get(earlier) if old is None else old.uid
        if uid != viewer.uid:
            return False
        self._left.pop(earlier, None)
        viewer.id = earlier
        if old is not None:
            del self._viewers[old.route]
        return True

    @property
    def _narrow(self) -> bool:
        return 5 * len(self._viewers) >= 4 * self._most

    def _warn(self) -> None:
        """Once each time that it becomes narrow."""
        count, most, narrow = len(self._viewers), self._most, self._narrow
        if narrow and not self._warned:
            _log.warning("%d viewers are attached, of %d at most (ulimit -Hn)", count, most)
        self._warned = narrow

    def left(self, viewer: Viewer) -> None:
        """A viewer is forgotten; one that holds something may come back for it."""
        if self._holds(viewer.id):
            self._left[viewer.id] = viewer.uid

    def look(self) -> None:
        """What nobody holds any more is nobody's."""
        self._left = {one: uid for one, uid in self._left.items() if self._holds(one)}
        self._warned = self._warned and self._narrow


def _refuse(code: str, text: str) -> cmd.Refuse:
    return cmd.Refuse(code=code, text=text, min=codec.MAJOR, max=codec.MAJOR)
