"""The right to command a session: one holder at a time, each with a number of its own.

A number is never used twice in the life of a daemon, so a command that was sent under an older one
is refused however late it comes. Time is handed in; knows no sockets and no logs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from engine_daemon.hub.refusing import Rejected
from engine_daemon.protocol import commands as cmd

TTL_S: Final = 10.0
"""Without a ping of its holder a lease is free after so long."""
STALL_S: Final = 1.5
"""A hub that did not turn for so long gives the time back to everybody."""
FREE_FOR_ALL: Final = (cmd.Pause, cmd.AddCondition, cmd.Note, cmd.Rename)
"""What needs no lease."""


@dataclass(slots=True)
class _Held:
    """`viewer` None: free; `no` is then the last number."""

    no: int = 0
    viewer: bytes | None = None
    who: str = ""
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Holder:
    """Who had it: a viewer's id, the name shown to others, the number."""

    viewer: bytes
    who: str
    no: int


class Leases:
    """All leases of one daemon. `changed` is called when somebody gets or loses one."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._held: dict[str, _Held] = {}
        self._changed = changed
        self._turned: float | None = None

    def of(self, session: str) -> tuple[int, str | None]:
        """The number in force and its holder's name; None: it is free."""
        held = self._held.get(session, _Held())
        return held.no, None if held.viewer is None else held.who

    def held_by(self, viewer: bytes) -> list[str]:
        """The sessions whose lease this viewer has."""
        return [session for session, held in self._held.items() if held.viewer == viewer]

    def check(self, session: str, viewer: bytes, no: int) -> None:
        """May this viewer command the session, once `grant` was called? `Rejected` if not.

        A number that is not in force never may; without one (0) a free lease is had.
        """
        held = self._held.get(session, _Held())
        if held.viewer not in (None, viewer):
            code = "stale" if no else "no_lease"
            raise Rejected(code, f"lease held by {held.who}")
        if no not in (0, held.no):
            raise Rejected("stale", "this command was sent under an older lease", "Try again")

    def grant(self, session: str, viewer: bytes, who: str, now: float) -> int:
        """The lease is this viewer's, with a new number if it was not before; the number."""
        held = self._held.setdefault(session, _Held())
        if held.viewer != viewer:
            held.no, held.viewer, held.who = held.no + 1, viewer, who
            self._changed()
        held.until = now + TTL_S
        return held.no

    def renew(self, session: str, viewer: bytes, no: int, now: float) -> int:
        """Ten seconds more of one's own lease; `Rejected` when it is lost."""
        held = self._held.get(session, _Held())
        if held.viewer != viewer or held.no != no:
            raise Rejected("stale", "this lease is lost", "Acquire it again")
        held.until = now + TTL_S
        return no

    def release(self, session: str, viewer: bytes, no: int) -> None:
        """Give it back; nothing happens when it is another's by now."""
        held = self._held.get(session)
        if held is not None and held.viewer == viewer and no in (0, held.no):
            self._free(held)

    def take(self, session: str, viewer: bytes, who: str, now: float) -> tuple[int, Holder | None]:
        """Whoever has it, it is this viewer's now: the number, and who lost it."""
        held = self._held.setdefault(session, _Held())
        lost = None
        if held.viewer not in (None, viewer):
            assert held.viewer is not None
            lost = Holder(held.viewer, held.who, held.no)
            held.viewer = None
        return self.grant(session, viewer, who, now), lost

    def heard(self, viewer: bytes, now: float) -> None:
        """The viewer's loop runs: what it holds it keeps."""
        for held in self._held.values():
            if held.viewer == viewer:
                held.until = now + TTL_S

    def expire(self, now: float) -> None:
        """Free what nobody renewed. To be called at every turn, after what came in was read."""
        stalled = 0.0 if self._turned is None else now - self._turned
        self._turned = now
        for held in self._held.values():
            if stalled > STALL_S:
                held.until += stalled
            if held.viewer is not None and now >= held.until:
                self._free(held)

    def forget(self, session: str) -> None:
        """The session is over: nobody has it. Its number stays, in case it comes again."""
        held = self._held.get(session)
        if held is not None and held.viewer is not None:
            self._free(held)

    def _free(self, held: _Held) -> None:
        held.viewer, held.who = None, ""
        self._changed()
