"""The viewers' side of the hub: their socket, what they ask for, and what they are sent.

Hands commands to `control` and reads to the engine side; the loop and the daemon's life are
`hub`'s.
"""

import os
import time
from collections.abc import Callable
from typing import Final

import zmq

from engine_daemon import __version__
from engine_daemon.hub.arrivals import Arrivals
from engine_daemon.hub.asking import Asking
from engine_daemon.hub.complaints import Complaints
from engine_daemon.hub.fanout import Cuts, next_batch
from engine_daemon.hub.late import LateJoiners
from engine_daemon.hub.lease import Leases
from engine_daemon.hub.orders import Orders
from engine_daemon.hub.room import Room
from engine_daemon.hub.sessions import SessionStore
from engine_daemon.hub.sharing import Sharing, check_own_peer, peer_uid
from engine_daemon.hub.socket_path import bind_private, viewer_socket
from engine_daemon.hub.viewers import (
    MOST_ASKS,
    MOST_ASKS_IN_ALL,
    QUIET_S,
    SILENT_S,
    Following,
    Viewer,
)
from engine_daemon.hub.workers import EngineSide
from engine_daemon.paths import Paths
from engine_daemon.protocol import codec, reads
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.codec import (
    Envelope,
    WireError,
    decode_body,
    open_envelope,
    seal,
    sealed,
)
from engine_daemon.protocol.state import State

RECEIVE_AT_ONCE: Final = 256
_LARGE: Final = (cmd.Open, reads.AskEncode)


class Front:
    """Owns the viewers' socket and who is attached to it.

    `state` makes the state to send; `changed` is called when there is a new one.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        paths: Paths,
        epoch: bytes,
        store: SessionStore,
        engine: EngineSide,
        state: Callable[[], State],
        changed: Callable[[], None],
        sharing: Sharing,
    ) -> None:
        self.epoch = epoch
        self._sharing = sharing
        self._open = False
        self.socket = viewer_socket(context, sharing.uids)
        self._path = paths.viewer_socket
        self.room = Room(self.socket)
        self.bind()
        if sharing.on:
            check_own_peer(context, self.socket, self._path)
        self._open = sharing.on
        self._let_in()
        self.viewers: dict[bytes, Viewer] = {}
        self.leases = Leases(changed)
        self._orders = Orders(epoch, store, engine, self.leases, self.viewers, self._tell, changed)
        self._late = LateJoiners()
        self._arrivals = Arrivals(
            self.viewers, self.room.most, sharing, lambda viewer: bool(self.leases.held_by(viewer))
        )
        self._lags: list[int] = []
        self._asking = Asking(store, engine)
        self._complaints = Complaints()
        self._store = store
        self._engine = engine
        self._state = state
        self._changed = changed
        self._looks: dict[tuple[bytes, str], float] = {}
        self._sent = 0

    def bind(self) -> None:
        """Listen at the socket's path; again when it was cleaned away."""
        bind_private(self.socket, self._path)
        self._let_in()

    def _let_in(self) -> None:
        """Others may connect once it is known that they can be told from us."""
        if self._open:
            os.chmod(self._path, 0o666)

    @property
    def stop_asked(self) -> bool:
        """Somebody told the daemon to leave."""
        return self._orders.stop_asked

    @property
    def next_look(self) -> float | None:
        """When a paced batch is due."""
        return min(self._looks.values(), default=None)

    def probe(self, now: float) -> None:
        """Write to viewers that are quiet: one that is gone is forgotten then. What nobody can
        hold any more is free; who has caught up is shown so."""
        heads = {session.id: session.log.head for session in self._store}
        lags = [viewer.lag(heads, now) for viewer in self.viewers.values()]
        if lags != self._lags:
            self._lags = lags
            self._changed()
        for session in self._store:
            if not session.open:
                self.leases.forget(session.id)
        self._late.forget_old(now)
        self._complaints.look(now)
        self._arrivals.look()
        for viewer in list(self.viewers.values()):
            if now - viewer.heard > SILENT_S:
                self._forget(viewer)
            elif viewer.owed_state:
                viewer.owed_state = not self._send(viewer, cmd.StateMessage(state=self._state()))
            elif now - viewer.heard > QUIET_S:
                self._send(viewer, cmd.Pong(t_ns=time.monotonic_ns()))

    def followed(self) -> set[str]:
        """Sessions that somebody follows."""
        return {name for viewer in self.viewers.values() for name in viewer.following}

    def close(self) -> None:
        """Send what is under way, at most a fifth of a second."""
        self.room.close()
        self.socket.close(linger=200)

    # Receiving --------------------------------------------------------------------------------

    def receive(self) -> None:
        """Handle what lies at the socket."""
        for _ in range(RECEIVE_AT_ONCE):
            try:
                uid, route, frames = self._receive_one()
            except zmq.Again:
                return
            if uid is None or uid not in self._sharing.uids:
                continue
            number = None
            try:
                envelope, body = open_envelope(frames)
                number = envelope.id
                self._handle(route, uid, envelope, body)
            except WireError as error:
                self._complain(route, error, number)

    def _receive_one(self) -> tuple[int | None, bytes, list[bytes]]:
        """Who sent it (told by the system where others may), its route, its frames."""
        if not self._sharing.on:
            route, *frames = self.socket.recv_multipart(zmq.NOBLOCK)
            return self._sharing.own, route, frames
        parts = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        raw = [part.bytes for part in parts]
        return peer_uid(parts[-1]), raw[0], raw[1:]

    def _handle(self, route: bytes, uid: int, envelope: Envelope, body: bytes) -> None:
        kind = cmd.FROM_VIEWER.get(envelope.t)
        if kind is None:
            raise WireError("bad_frames", f"unknown message {envelope.t[:40]!r}")
        limit = codec.body_limit(envelope.t)
        if len(body) > limit:
            raise WireError("too_big", f"{envelope.t} of {len(body)} bytes", limit)
        message = decode_body(body, kind)
        now = time.monotonic()
        viewer = self.viewers.get(route)
        if viewer is not None and viewer.uid != uid:
            raise WireError("bad_frames", "this connection is another user's")
        if viewer is None and not isinstance(message, cmd.Hello):
            raise WireError("no_hello", "say hello first")
        if viewer is not None:
            viewer.heard = now
            if envelope.t in ("cmd", "ask", "lease", "hello") and not viewer.allow(now):
                raise WireError("slow_down", "too many requests, 100 a second are served")
        if isinstance(message, cmd.Hello):
            self._hello(route, uid, envelope, message, now)
        else:
            assert viewer is not None
            self._dispatch(viewer, envelope, message, len(body), now)

    def _dispatch(
        self,
        viewer: Viewer,
        envelope: Envelope,
        message: cmd.Message,
        size: int,
        now: float,
    ) -> None:
        match message:
            case cmd.Cmd():
                if size > codec.BODY_LIMIT and not isinstance(message.do, _LARGE):
                    raise WireError("too_big", f"cmd of {size} bytes", codec.BODY_LIMIT)
                self._send(viewer, self._orders.command(viewer, message, now), re=envelope.id)
            case cmd.AskRequest():
                if size > codec.BODY_LIMIT and not isinstance(message.ask, _LARGE):
                    raise WireError("too_big", f"ask of {size} bytes", codec.BODY_LIMIT)
                self._ask(viewer, message, envelope.id)
            case cmd.Sub():
                self._subscribe(viewer, message, now)
            case cmd.Unsub(session=session):
                viewer.following.pop(session, None)
                self._changed()
            case cmd.Ack(session=session, next=upto, parts=parts):
                following = viewer.following.get(session)
                if following is not None:
                    following.acknowledge(upto, parts)
            case cmd.Lease():
                self._send(viewer, self._orders.lease(viewer, message, now), re=envelope.id)
            case cmd.Ping():
                self.leases.heard(viewer.id, now)
                self._send(viewer, self._pong(viewer), re=envelope.id)

    def _hello(
        self, route: bytes, uid: int, envelope: Envelope, hello: cmd.Hello, now: float
    ) -> None:
        viewer = self._arrivals.hello(route, uid, hello, now)
        if isinstance(viewer, cmd.Refuse):
            self._send_raw(route, seal(viewer, re=envelope.id, ep=self.epoch))
            return
        self._changed()
        welcome = cmd.Welcome(
            ver=codec.VERSION,
            tool=__version__,
            caps=list(codec.CAPS),
            ep=self.epoch,
            viewer=viewer.id,
            role=viewer.role,
            limits=cmd.Limits(body_bytes=codec.BODY_LIMIT, text_bytes=codec.TEXT_LIMIT),
            state=self._state(),
            t_ns=time.monotonic_ns(),
        )
        self._send(viewer, welcome, re=envelope.id)

    def _subscribe(self, viewer: Viewer, sub: cmd.Sub, now: float) -> None:
        session = self._store.get(sub.session)
        if session is None:
            raise WireError("no_session", f"no session {sub.session[:40]!r} is open here")
        if not 0 <= sub.start <= session.log.head:
            raise WireError("bad_arg", f"the log of {session.id} has {session.log.head} events")
        following = Following(session.id, sub.start, max(1, sub.win_bytes), acked=sub.start)
        late = self._late.parts(session, now) if sub.snapshot and sub.start == 0 else None
        if late is not None:
            following.next, following.snapshot = late.seq, late.parts
        viewer.following[session.id] = following
        self._changed()  # who looks at what is part of the state

    def _complain(self, route: bytes, error: WireError, number: int | None) -> None:
        self._complaints.say(error.code, error.message, time.monotonic())
        message = cmd.ErrorMessage(code=error.code, message=error.message, limit=error.limit)
        self._send_raw(route, seal(message, re=number, ep=self.epoch))

    def _ask(self, viewer: Viewer, message: cmd.AskRequest, number: int) -> None:
        in_all = sum(one.asks for one in self.viewers.values())
        if viewer.asks >= MOST_ASKS or in_all >= MOST_ASKS_IN_ALL:
            busy = cmd.Answer(code="busy", message="too many reads are not answered yet")
            self._send(viewer, busy, re=number)
            return

        def put(answer: cmd.Answer) -> None:
            here = self.viewers.get(viewer.route, viewer)
            here.asks = max(0, here.asks - 1)
            self._send(viewer, answer, re=number)

        viewer.asks += 1
        self._asking.ask(message, put)

    def _pong(self, viewer: Viewer) -> cmd.Pong:
        for name in viewer.following:
            session = self._store.get(name)
            if session is not None:
                head, durable = session.log.head, session.durable()
                return cmd.Pong(head=head, durable=durable, t_ns=time.monotonic_ns())
        return cmd.Pong(t_ns=time.monotonic_ns())

    # Sending ----------------------------------------------------------------------------------

    def flush(self, now: float, *, at_once: bool = False) -> None:
        """Send every viewer what it has credit for and what is due."""
        self._looks.clear()
        cuts = Cuts()
        for viewer in list(self.viewers.values()):
            for following in list(viewer.following.values()):
                self._flush_one(viewer, following, now + 1.0 if at_once else now, cuts)

    def _flush_one(self, viewer: Viewer, following: Following, now: float, cuts: Cuts) -> None:
        session = self._store.get(following.session)
        if session is None:
            return
        while (part := following.next_part()) is not None:
            message = cmd.Snapshot(
                session=session.id,
                seq=following.next,
                part=following.parts_sent,
                parts=len(following.snapshot),
                columns=part,
            )
            frames = seal(message, id=self._number(), ep=self.epoch, session=session.id)
            if not self._send_raw(viewer.route, frames):
                return
            following.part_sent()
        while True:
            cut = next_batch(following, session.log, session.durable(), now, cuts)
            if cut is None:
                return
            if isinstance(cut, float):
                self._looks[viewer.route, following.session] = cut
                return
            number = self._number()
            frames = sealed(cmd.Batch, cut.body, id=number, ep=self.epoch, session=session.id)
            if not self._send_raw(viewer.route, frames):
                # Its queue is full: an `ack` or the next tick comes back to it.
                return
            following.sent(cut.to, len(cut.body), now)

    def _tell(self, viewer_id: bytes, message: cmd.Message) -> None:
        """Send to one viewer by its id, if it is there."""
        for viewer in list(self.viewers.values()):
            if viewer.id == viewer_id:
                self._send(viewer, message)

    def push(self, state: cmd.StateMessage) -> None:
        """Tell everybody; whoever cannot take it now is told a later one (`probe`)."""
        frames = seal(state, id=self._number(), ep=self.epoch)
        for viewer in list(self.viewers.values()):
            viewer.owed_state = not self._send_raw(viewer.route, frames)

    def _number(self) -> int:
        self._sent += 1
        return self._sent

    def _send(self, viewer: Viewer, message: cmd.Message, *, re: int | None = None) -> bool:
        frames = seal(message, id=self._number(), re=re, ep=self.epoch, viewer=viewer.id)
        return self._send_raw(viewer.route, frames)

    def _send_raw(self, route: bytes, frames: list[bytes]) -> bool:
        """False when it could not be sent now; a viewer that is gone is forgotten."""
        try:
            self.socket.send_multipart([route, *frames], zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError:  # EHOSTUNREACH: the peer is gone
            viewer = self.viewers.get(route)
            if viewer is not None:
                self._forget(viewer)
            return False
        return True

    def _forget(self, viewer: Viewer) -> None:
        self.viewers.pop(viewer.route, None)
        self._arrivals.left(viewer)
        self._changed()
