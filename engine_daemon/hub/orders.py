"""What viewers order: commands and leases, checked for epoch, role and lease, then obeyed.

An order that comes twice is obeyed once. What a command may do to a session is `control`'s; who may
command it `lease`'s. Knows no sockets.
"""

import contextlib
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from engine_daemon.errors import InspectError
from engine_daemon.hub.control import obey, open_session
from engine_daemon.hub.lease import FREE_FOR_ALL, Leases
from engine_daemon.hub.refusing import Rejected, log_command
from engine_daemon.hub.renaming import rename_closed
from engine_daemon.hub.reopening import reopen
from engine_daemon.hub.sessions import Session, SessionStore
from engine_daemon.hub.viewers import Viewer
from engine_daemon.hub.workers import EngineSide
from engine_daemon.protocol import commands as cmd
from engine_daemon.recording.writer import LogError

LATE_S: Final = 4.0
"""A command that was under way for so long is not obeyed: whoever sent it has been told, or is
about to be, that no answer came (after 5 s). A link that stalls delivers what was sent over it."""
REMEMBERED: Final = 4096
"""Replies kept, so that a repeated command gets the same one."""


class Orders:
    """`tell` sends a message to the viewer with this id. `stop_asked` is set by the command that
    ends the daemon."""

    def __init__(
        self,
        epoch: bytes,
        store: SessionStore,
        engine: EngineSide,
        leases: Leases,
        viewers: Mapping[bytes, Viewer],
        tell: Callable[[bytes, cmd.Message], None],
        changed: Callable[[], None],
    ) -> None:
        self.stop_asked = False
        self._epoch = epoch
        self._store = store
        self._engine = engine
        self._leases = leases
        self._viewers = viewers
        self._tell = tell
        self._changed = changed
        self._replies: OrderedDict[bytes, cmd.Reply] = OrderedDict()

    def command(self, viewer: Viewer, message: cmd.Cmd, now: float) -> cmd.Reply:
        """Do it, or say why not."""
        return self._once(viewer, message, lambda: self._carry_out(viewer, message, now), now)

    def lease(self, viewer: Viewer, message: cmd.Lease, now: float) -> cmd.Reply:
        """Hand a lease over, or say why not."""
        return self._once(viewer, message, lambda: self._hand_over(viewer, message, now), now)

    def _once(
        self,
        viewer: Viewer,
        message: cmd.Cmd | cmd.Lease,
        act: Callable[[], tuple[str | None, int]],
        now: float,
    ) -> cmd.Reply:
        """Act, unless that was done for the same message before; the reply is the same then.

        Observers change nothing, nor does what comes too late. `act` gives the session concerned
        and the number of the lease that the sender has of it.
        """
        command = message.cmd
        if viewer.role == "observer":
            return Rejected("observer", "observers only watch").reply(command)
        known = self._replies.get(command)
        if known is not None:
            return known
        under_way = now - message.t_ns / 1e9
        if message.t_ns and under_way > LATE_S:
            late = f"not done: it was under way for {under_way:.0f} s"
            return Rejected("late", late, "Look at the session, then try again").reply(command)
        try:
            session, lease_no = act()
            reply = cmd.Reply(cmd=command, status="accepted", session=session, lease_no=lease_no)
        except Rejected as refusal:
            reply = refusal.reply(command)
        except (LogError, InspectError) as error:  # whatever a log holds, the hub goes on
            reply = Rejected(error.code, error.message, error.hint).reply(command)
        self._replies[command] = reply
        if len(self._replies) > REMEMBERED:
            self._replies.popitem(last=False)
        self._changed()
        return reply

    def _carry_out(self, viewer: Viewer, message: cmd.Cmd, now: float) -> tuple[str | None, int]:
        if message.epoch != self._epoch:
            raise Rejected("stale", "the daemon was restarted since", "Attach again")
        seats, do = self._engine.seats, message.do
        match do:
            case cmd.StopDaemon() | cmd.KillEngine() if viewer.uid != os.getuid():
                raise Rejected("observer", "only the daemon's own user may stop it")
            case cmd.KillEngine():
                self._engine.kill(viewer.who)
                return None, 0
            case cmd.StopDaemon():
                self.stop_asked = True
                return None, 0
            case cmd.CheckWeights():
                self._engine.check_weights()
                return None, 0
            case cmd.Reopen(session=name):
                if (closed := self._store.get(name)) is None or not closed.open:
                    self._leases.forget(name)  # whose it was before it was closed
                again = reopen(self._store, seats, name, viewer.who, message.cmd).id
                with contextlib.suppress(Rejected):  # open already, and somebody has its lease
                    self._leases.check(again, viewer.id, 0)
                    return again, self._leases.grant(again, viewer.id, viewer.who, now)
                return again, 0
            case cmd.Release(session=name):
                self._store.let_go(name)
                if do.removed and self._store.get(name) is None:
                    self._tell_followers(viewer, name)
                return name, 0
            case cmd.Rename(title=title) if (known := self._closed(message.session)) is not None:
                rename_closed(known, title, viewer.who, message.cmd, now)
                return known.id, 0
            case cmd.Open():
                opened = open_session(self._store, seats, do, viewer.who, message.cmd).id
                return opened, self._leases.grant(opened, viewer.id, viewer.who, now)
        session = self._open_session(message.session)
        leased = not isinstance(do, FREE_FOR_ALL)
        if leased:
            self._leases.check(session.id, viewer.id, message.lease_no)
        obey(session, seats, do, message.at, viewer.who, message.cmd, now)
        if not leased or not session.open:
            return session.id, 0
        return session.id, self._leases.grant(session.id, viewer.id, viewer.who, now)

    def _tell_followers(self, viewer: Viewer, name: str) -> None:
        """Its recording is gone; nobody follows it any more. Who turns out to have left when told
        is forgotten meanwhile."""
        for one in list(self._viewers.values()):
            if one.following.pop(name, None) is not None and one is not viewer:
                self._tell(one.id, cmd.Removed(session=name, by=viewer.who))

    def _closed(self, name: str | None) -> Session | None:
        """The session where it is closed and still at hand."""
        session = self._store.get(name)
        return None if session is None or session.open else session

    def _open_session(self, name: str | None) -> Session:
        session = self._store.get(name)
        if session is None or not session.open:
            raise Rejected("no_session", f"no session {name!r} is open here")
        return session

    def _hand_over(self, viewer: Viewer, message: cmd.Lease, now: float) -> tuple[str, int]:
        session, leases = self._open_session(message.session), self._leases
        match message.do:
            case "acquire":
                leases.check(session.id, viewer.id, 0)
                return session.id, leases.grant(session.id, viewer.id, viewer.who, now)
            case "renew":
                return session.id, leases.renew(session.id, viewer.id, message.lease_no, now)
            case "release":
                leases.release(session.id, viewer.id, message.lease_no)
                return session.id, 0
            case "take":
                return session.id, self._take(viewer, session, message.cmd, now)

    def _take(self, viewer: Viewer, session: Session, cause: bytes, now: float) -> int:
        """Also when the disk is full: whoever wants to mend things must be able to."""
        number, lost = self._leases.take(session.id, viewer.id, viewer.who, now)
        if lost is not None:
            told = cmd.Lost(session=session.id, lease=lost.no, by=viewer.who)
            self._tell(lost.viewer, told)
            with contextlib.suppress(LogError):
                log_command(session, "take", viewer.who, cause, text=lost.who)
        return number
