"""The viewers' side of the hub: their socket, what they ask for, and what they are sent.

Hands commands to `control` and reads to the engine side; the loop and the daemon's life are
`hub`'s.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, assert_never

import zmq

from engine_daemon import __version__
from engine_daemon.hub.control import obey, open_session
from engine_daemon.hub.fanout import next_batch
from engine_daemon.hub.refusing import Rejected
from engine_daemon.hub.reopening import reopen
from engine_daemon.hub.sessions import Session, SessionStore
from engine_daemon.hub.socket_path import bind_private, viewer_socket
from engine_daemon.hub.viewers import QUIET_S, SILENT_S, Following, Viewer
from engine_daemon.hub.workers import EngineSide
from engine_daemon.paths import Paths
from engine_daemon.protocol import codec, reads
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.codec import Envelope, WireError, decode_body, open_envelope, seal
from engine_daemon.protocol.state import State
from engine_daemon.protocol.worker import Encoded, Resolved
from engine_daemon.recording.writer import LogError

REMEMBERED: Final = 4096
"""Replies kept, so that a repeated command gets the same one."""
ANSWER_BYTES: Final = 4 * 1024 * 1024
MAX_EVENTS_ASKED: Final = 512
RECEIVE_AT_ONCE: Final = 256
_LARGE: Final = (cmd.Open, reads.AskEncode)

_log = logging.getLogger(__name__)


class Front:
    """Owns the viewers' socket and who is attached to it.

    `state` makes the state to send; `changed` is called when there is a new one. `stop_asked` is
    set by the command that ends the daemon.
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
    ) -> None:
        self.epoch = epoch
        self.socket = viewer_socket(context)
        self._path = paths.viewer_socket
        self.bind()
        self.viewers: dict[bytes, Viewer] = {}
        self.stop_asked = False
        self._store = store
        self._engine = engine
        self._state = state
        self._changed = changed
        self._replies: OrderedDict[bytes, cmd.Reply] = OrderedDict()
        self._looks: dict[tuple[bytes, str], float] = {}
        self._sent = 0

    def bind(self) -> None:
        """Listen at the socket's path; again when it was cleaned away."""
        bind_private(self.socket, self._path)

    @property
    def next_look(self) -> float | None:
        """When a paced batch is due."""
        return min(self._looks.values(), default=None)

    def probe(self, now: float) -> None:
        """Write to viewers that are quiet: one that is gone is forgotten then."""
        for viewer in list(self.viewers.values()):
            if now - viewer.heard > SILENT_S:
                self._forget(viewer)
            elif now - viewer.heard > QUIET_S:
                self._send(viewer, cmd.Pong())

    def followed(self) -> set[str]:
        """Sessions that somebody follows."""
        return {name for viewer in self.viewers.values() for name in viewer.following}

    def close(self) -> None:
        """Send what is under way, at most a fifth of a second."""
        self.socket.close(linger=200)

    # Receiving --------------------------------------------------------------------------------

    def receive(self) -> None:
        """Handle what lies at the socket."""
        for _ in range(RECEIVE_AT_ONCE):
            try:
                route, *frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            number = None
            try:
                envelope, body = open_envelope(frames)
                number = envelope.id
                self._handle(route, envelope, body)
            except WireError as error:
                self._complain(route, error, number)

    def _handle(self, route: bytes, envelope: Envelope, body: bytes) -> None:
        kind = cmd.FROM_VIEWER.get(envelope.t)
        if kind is None:
            raise WireError("bad_frames", f"unknown message {envelope.t[:40]!r}")
        limit = codec.body_limit(envelope.t)
        if len(body) > limit:
            raise WireError("too_big", f"{envelope.t} of {len(body)} bytes", limit)
        message = decode_body(body, kind)
        now = time.monotonic()
        viewer = self.viewers.get(route)
        if viewer is None and not isinstance(message, cmd.Hello):
            raise WireError("no_hello", "say hello first")
        if viewer is not None:
            viewer.heard = now
            if envelope.t in ("cmd", "ask", "hello") and not viewer.allow(now):
                raise WireError("slow_down", "too many requests, 100 a second are served")
        self._dispatch(route, viewer, envelope, message, len(body), now)

    def _dispatch(
        self,
        route: bytes,
        viewer: Viewer | None,
        envelope: Envelope,
        message: cmd.Message,
        size: int,
        now: float,
    ) -> None:
        if isinstance(message, cmd.Hello):
            self._hello(route, envelope, message, now)
            return
        assert viewer is not None
        match message:
            case cmd.Cmd():
                if size > codec.BODY_LIMIT and not isinstance(message.do, _LARGE):
                    raise WireError("too_big", f"cmd of {size} bytes", codec.BODY_LIMIT)
                self._send(viewer, self._command(viewer, message, now), re=envelope.id)
            case cmd.AskRequest():
                if size > codec.BODY_LIMIT and not isinstance(message.ask, _LARGE):
                    raise WireError("too_big", f"ask of {size} bytes", codec.BODY_LIMIT)
                self._ask(viewer, message, envelope.id)
            case cmd.Sub(session=session, start=start, win_bytes=win_bytes):
                self._subscribe(viewer, session, start, win_bytes)
            case cmd.Unsub(session=session):
                viewer.following.pop(session, None)
            case cmd.Ack(session=session, next=upto):
                following = viewer.following.get(session)
                if following is not None:
                    following.acknowledge(upto)
            case cmd.Ping():
                self._send(viewer, self._pong(viewer), re=envelope.id)

    def _hello(self, route: bytes, envelope: Envelope, hello: cmd.Hello, now: float) -> None:
        if not hello.min <= codec.MAJOR <= hello.max:
            refuse = cmd.Refuse(
                code="version",
                text=f"this daemon speaks protocol {codec.VERSION}",
                min=codec.MAJOR,
                max=codec.MAJOR,
            )
            self._send_raw(route, seal(refuse, re=envelope.id, ep=self.epoch))
            return
        viewer = Viewer(
            route=route,
            who=hello.who[:64],
            client=hello.client[:64],
            role="observer" if hello.want == "observe" else "controller",
            heard=now,
            refilled=now,
        )
        self.viewers[route] = viewer
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
        )
        self._send(viewer, welcome, re=envelope.id)

    def _subscribe(self, viewer: Viewer, name: str, start: int, win_bytes: int) -> None:
        session = self._store.get(name)
        if session is None:
            raise WireError("no_session", f"no session {name[:40]!r} is open here")
        if not 0 <= start <= session.log.head:
            raise WireError("bad_arg", f"the log of {name} has {session.log.head} events")
        viewer.following[name] = Following(name, start, max(1, win_bytes), acked=start)

    def _complain(self, route: bytes, error: WireError, number: int | None) -> None:
        _log.info("refused: %s %s", error.code, error.message)
        message = cmd.ErrorMessage(code=error.code, message=error.message, limit=error.limit)
        self._send_raw(route, seal(message, re=number, ep=self.epoch))

    # Commands and reads -------------------------------------------------------------------------

    def _command(self, viewer: Viewer, message: cmd.Cmd, now: float) -> cmd.Reply:
        known = self._replies.get(message.cmd)
        if known is not None:
            return known
        try:
            session_id = self._carry_out(viewer, message, now)
            reply = cmd.Reply(cmd=message.cmd, status="accepted", session=session_id)
        except Rejected as refusal:
            reply = refusal.reply(message.cmd)
        except LogError as error:
            reply = Rejected(error.code, error.message, error.hint).reply(message.cmd)
        self._replies[message.cmd] = reply
        if len(self._replies) > REMEMBERED:
            self._replies.popitem(last=False)
        self._changed()
        return reply

    def _carry_out(self, viewer: Viewer, message: cmd.Cmd, now: float) -> str | None:
        if message.epoch != self.epoch:
            raise Rejected("stale", "the daemon was restarted since", "Attach again")
        if viewer.role == "observer" and not isinstance(message.do, cmd.Pause):
            raise Rejected("observer", "observers only watch")
        if isinstance(message.do, cmd.StopDaemon):
            self.stop_asked = True
            return None
        if isinstance(message.do, cmd.CheckWeights):
            self._engine.check_weights()
            return None
        if isinstance(message.do, cmd.Reopen):
            seats, wanted = self._engine.seats, message.do.session
            return reopen(self._store, seats, wanted, viewer.who, message.cmd).id
        if isinstance(message.do, cmd.Release):
            self._store.let_go(message.do.session)
            return message.do.session
        if isinstance(message.do, cmd.Open):
            return open_session(
                self._store, self._engine.seats, message.do, viewer.who, message.cmd
            ).id
        session = self._store.get(message.session)
        if session is None or not session.open:
            raise Rejected("no_session", f"no session {message.session!r} is open here")
        obey(session, self._engine.seats, message.do, message.at, viewer.who, message.cmd, now)
        return session.id

    def _ask(self, viewer: Viewer, message: cmd.AskRequest, number: int) -> None:
        encoder = self._engine.seats.encoder
        match message.ask:
            case reads.AskEvents(seqs=seqs):
                answer = self._events(self._store.get(message.session), seqs)
                self._send(viewer, answer, re=number)
            case reads.AskEncode() | reads.AskCondition() if not encoder.ready:
                busy = cmd.Answer(code="busy", message="the tokenizer is not loaded yet")
                self._send(viewer, busy, re=number)
            case reads.AskEncode(prompt=prompt):
                encoder.encode(prompt, self._encode_answer(viewer, number))
            case reads.AskCondition(source=source):
                encoder.resolve([source], [], self._condition_answer(viewer, number))
            case reads.AskStacks():
                self._engine.stacks(self._stacks_answer(viewer, number))
            case reads.AskToken() | reads.AskWhatIf() | reads.AskPreview() | reads.AskReroll():
                session = self._store.get(message.session)
                self._engine.reads.ask(
                    session, message.ask, lambda answer: self._send(viewer, answer, re=number)
                )
            case _:
                assert_never(message.ask)

    def _encode_answer(self, viewer: Viewer, number: int) -> Callable[[Encoded], None]:
        def answer(it: Encoded) -> None:
            found = cmd.Answer(code=it.code, message=it.message, prompt=it.prompt)
            self._send(viewer, found, re=number)

        return answer

    def _condition_answer(self, viewer: Viewer, number: int) -> Callable[[Resolved], None]:
        def answer(resolved: Resolved) -> None:
            words = ". ".join(filter(None, (resolved.message, resolved.hint)))
            self._send(viewer, cmd.Answer(code=resolved.code, message=words), re=number)

        return answer

    def _stacks_answer(self, viewer: Viewer, number: int) -> Callable[[str | None], None]:
        def answer(text: str | None) -> None:
            code = "no_engine" if text is None else ""
            self._send(viewer, cmd.Answer(code=code, text=text), re=number)

        return answer

    def _events(self, session: Session | None, seqs: list[int]) -> cmd.Answer:
        if session is None:
            return cmd.Answer(code="gone", message="this session is not open here")
        found: list[tuple[int, bytes]] = []
        size = 0
        for seq in seqs[:MAX_EVENTS_ASKED]:
            for event in session.log.read(seq, seq + 1, 1):
                found.append(event)
                size += len(event[1])
            if size > ANSWER_BYTES:
                break
        return cmd.Answer(ev=found)

    def _pong(self, viewer: Viewer) -> cmd.Pong:
        for name in viewer.following:
            session = self._store.get(name)
            if session is not None:
                return cmd.Pong(head=session.log.head, durable=session.durable())
        return cmd.Pong()

    # Sending ----------------------------------------------------------------------------------

    def flush(self, now: float, *, at_once: bool = False) -> None:
        """Send every viewer what it has credit for and what is due."""
        self._looks.clear()
        for viewer in list(self.viewers.values()):
            for following in list(viewer.following.values()):
                self._flush_one(viewer, following, now + 1.0 if at_once else now)

    def _flush_one(self, viewer: Viewer, following: Following, now: float) -> None:
        session = self._store.get(following.session)
        if session is None:
            return
        while True:
            batch = next_batch(following, session.log, session.durable(), now)
            if batch is None:
                return
            if isinstance(batch, float):
                self._looks[viewer.route, following.session] = batch
                return
            frames = seal(batch, id=self._number(), ep=self.epoch, session=session.id)
            if not self._send_raw(viewer.route, frames):
                # Its queue is full: an `ack` or the next tick comes back to it.
                return
            following.sent(batch.to, len(frames[2]), now)

    def push(self, message: cmd.Message) -> None:
        """Send to everybody."""
        frames = seal(message, id=self._number(), ep=self.epoch)
        for viewer in list(self.viewers.values()):
            self._send_raw(viewer.route, frames)

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
        self._changed()
