"""One connection of a viewer to the hub: a DEALER socket inside an asyncio loop.

A lost link is closed and a new one made (by `client`); nothing queues while the hub is away. Knows
frames and answers; nothing of sessions.
"""

import asyncio
import getpass
import os
import socket
import time
from collections.abc import Callable
from typing import Final

import zmq
import zmq.utils.monitor

from engine_daemon.clock import boot_seconds
from engine_daemon.errors import Exit, InspectError, not_sent
from engine_daemon.frames import receive
from engine_daemon.paths import name_option
from engine_daemon.protocol import codec
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.codec import WireError, decode_body, open_envelope, seal
from engine_daemon.sizes import sized

FORGOTTEN: Final = "the daemon has forgotten this viewer"
SILENT: Final = "the daemon does not answer"
GONE: Final = "the daemon is gone"
_JUST_AFTER_S: Final = 0.01


class Link:
    """One socket, one life: a lost link is closed and another one made. `again`: by itself."""

    def __init__(
        self, endpoint: str, received: Callable[[cmd.Message], None], *, again: bool = False
    ) -> None:
        self._again = again
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._received = received
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        for option, value in (
            (zmq.IMMEDIATE, 1),
            (zmq.LINGER, 500),
            (zmq.SNDHWM, 64),
            (zmq.HEARTBEAT_IVL, 2000),
            (zmq.HEARTBEAT_TIMEOUT, 6000),
            (zmq.RECONNECT_IVL, -1),
        ):
            self._socket.setsockopt(option, value)
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        self._monitor = self._socket.get_monitor_socket(events)
        self._connected = self._loop.create_future()
        self._lost: asyncio.Future[str] = self._loop.create_future()
        self._waiting: dict[int, asyncio.Future[cmd.Message]] = {}
        self._count = 0
        self._heard = boot_seconds()
        self._ahead: int | None = None
        self._closed = False
        self._loop.add_reader(self._monitor.fileno(), self._watch)
        self._loop.add_reader(self._socket.fileno(), self._drain)
        self._socket.connect(endpoint)
        # A ZeroMQ descriptor tells edges only: whatever came before the reader was in place
        # is looked for once.
        self._loop.call_soon(self._watch)

    async def connected(self, limit_s: float) -> None:
        """Wait for the handshake; TimeoutError when it does not come."""
        async with asyncio.timeout(limit_s):  # `wait_for` may lose a cancellation
            await asyncio.shield(self._connected)

    async def lost(self, silent_s: float, ping_s: float) -> str:
        """Ping until the link is lost; why. It is silent after `silent_s`, not a ping later."""
        while True:
            left = max(silent_s - self.silent_s, 0.0) + _JUST_AFTER_S
            done, _ = await asyncio.wait([self._lost], timeout=min(ping_s, left))
            if done:
                return self._lost.result()
            self._drain()  # what came while this process had no turn counts
            if self.silent_s > silent_s:
                return SILENT
            self.send(cmd.Ping())

    @property
    def silent_s(self) -> float:
        """Seconds since the daemon was last heard, those included in which the machine slept."""
        return boot_seconds() - self._heard

    def fail(self, reason: str) -> None:
        """The link is of no more use."""
        if not self._lost.done():
            self._lost.set_result(reason)

    @property
    def hub_ns(self) -> int:
        """The hub's clock now, or a little earlier; 0 while it has told nothing."""
        return 0 if self._ahead is None else max(1, time.monotonic_ns() + self._ahead)

    def send(self, message: cmd.Message, session: str | None = None) -> int:
        """Send now or lose the link; the message's number. RuntimeError in a forked child, whose
        copy of the socket takes messages that never arrive."""
        if os.getpid() != self._pid:
            raise RuntimeError("a link to the daemon does not outlive a fork: attach in the child")
        self._count += 1
        if self._closed:
            return self._count
        try:
            self._socket.send_multipart(seal(message, id=self._count, session=session), zmq.NOBLOCK)
        except zmq.ZMQError:
            self.fail(GONE)
        self._loop.call_soon(self._drain)
        return self._count

    async def request(
        self, message: cmd.Message, limit_s: float, session: str | None = None
    ) -> cmd.Message:
        """Send and wait for the answer. InspectError when the link is lost meanwhile."""
        number = self.send(message, session)
        future: asyncio.Future[cmd.Message] = self._loop.create_future()
        if self._lost.done():
            raise not_sent()
        self._waiting[number] = future
        try:
            async with asyncio.timeout(limit_s):
                answer = await future
        finally:
            self._waiting.pop(number, None)
        if isinstance(answer, cmd.ErrorMessage):
            if answer.code == "no_hello":
                self.fail(FORGOTTEN)
            raise InspectError(answer.message, exit_code=exit_of(answer.code), code=answer.code)
        return answer

    def close(self, reason: str = "closed") -> None:
        """Close the socket; whoever waits for an answer is told."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_reader(self._monitor.fileno())
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close()
        self._context.term()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(unconfirmed(reason, again=self._again))
        self.fail(reason)

    def _watch(self) -> None:
        while not self._closed and int(self._monitor.getsockopt(zmq.EVENTS)) & int(zmq.POLLIN):
            event = zmq.utils.monitor.recv_monitor_message(self._monitor, zmq.NOBLOCK)
            if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                if not self._connected.done():
                    self._connected.set_result(None)
            else:
                self._drain()
                self.fail(GONE)

    def _drain(self) -> None:
        while not self._closed:
            try:
                frames = receive(self._socket)
            except zmq.Again:
                return
            self._heard = boot_seconds()
            try:
                self._take(frames)
            except WireError as error:
                self.fail(f"unreadable message from the daemon: {error.message}")

    def _take(self, frames: list[bytes]) -> None:
        envelope, body = open_envelope(frames)
        kind = cmd.FROM_HUB.get(envelope.t)
        if kind is None:
            return  # a newer daemon may say more than we know
        message = decode_body(body, kind)
        if isinstance(message, cmd.Welcome | cmd.Pong) and message.t_ns:
            ahead = message.t_ns - time.monotonic_ns()
            # The one that was under way for the least time tells best.
            self._ahead = ahead if self._ahead is None else max(ahead, self._ahead)
        waiting = self._waiting.get(envelope.re) if envelope.re is not None else None
        if waiting is not None and not waiting.done():
            waiting.set_result(message)
        else:
            self._received(message)


def default_who() -> str:
    """user@host, the name others see."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def exit_of(code: str) -> Exit:
    """A refusal is the daemon's, unless the request itself was wrong."""
    usual = ("busy", "gone", "stale", "no_engine", "slow_down", "observer", "other_model")
    lasting = (
        "late",
        "no_lease",
        "no_memory",
        "context_full",
        "disk_full",
        "locked",
        "io",
        "engine",
    )
    other = ("no_hello", "version", "damaged")
    return Exit.DAEMON if code in (*usual, *lasting, *other) else Exit.USAGE


def unconfirmed(reason: str, *, again: bool = False) -> InspectError:
    """The error of a request whose answer never came. `again`: the link is made again anyway."""
    return InspectError(
        f"not confirmed: {reason}",
        "The link is tried again; it was done if the screen shows it then"
        if again
        else "Attach again and look at the session",
        exit_code=Exit.DAEMON,
        code="link_lost",
    )


def refused(refuse: cmd.Refuse, name: str) -> InspectError:
    """The error of a hello that the daemon called `name` refused."""
    message, hint = refuse.text, "Detach one, or start the daemon where `ulimit -Hn` is higher"
    if refuse.code == "version":
        message = f"{refuse.text}; this viewer speaks {codec.VERSION}"
        restart = f"llm-inspect daemon restart{name_option(name)}"
        hint = f"Install the same version on both sides, then {restart}"
    return InspectError(message, hint, exit_code=Exit.DAEMON, code=refuse.code)


def check_message(message: cmd.Message, session: str | None = None) -> None:
    """Raise InspectError for what the wire cannot carry, or the daemon would not understand."""
    try:
        body = seal(message, session=session)[2]
        codec.decode_body(body, type(message))
    except (OverflowError, TypeError, ValueError, WireError) as error:
        raise InspectError(f"this cannot be asked of a daemon: {error}", code="bad_arg") from None
    size = len(body)
    if size > codec.TEXT_LIMIT:
        raise InspectError(
            f"the prompt is {sized(size)}, the limit is {sized(codec.TEXT_LIMIT)}",
            "Use a shorter one",
            code="too_big",
        )
