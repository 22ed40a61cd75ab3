"""Attach to a daemon: typed commands in, typed updates out, over one DEALER socket.

Works inside one asyncio loop. Knows the wire and the guards of a viewer (nothing queues while the
hub is away, commands carry the place they are meant for); nothing of screens, recordings or torch.
"""

import asyncio
import getpass
import os
import socket
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec

from engine_daemon import __version__
from engine_daemon.errors import Exit, InspectError
from engine_daemon.link import FORGOTTEN, SILENT, Link, check_message, exit_of, not_sent
from engine_daemon.lookup import endpoint_of, no_answer, no_daemon
from engine_daemon.paths import Paths, name_option
from engine_daemon.protocol import codec
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.reads import AnyAsk
from engine_daemon.protocol.state import State
from engine_daemon.protocol.viewing import LeaseWord

CONNECT_S: Final = 3.0
REPLY_S: Final = 5.0
ASK_S: Final = 60.0
"""A prompt of 8 MiB takes some seconds to tokenise; other reads answer at once."""
PING_S: Final = 2.0
MISSED_PINGS: Final = 3
RETRY_S: Final = 0.2
WINDOW_BYTES: Final = 2 * 1024 * 1024

M = TypeVar("M", bound=cmd.Message)


class LinkLost(msgspec.Struct, frozen=True):
    """The daemon cannot be reached; what is on screen is what was known then."""

    reason: str


class LinkUp(msgspec.Struct, frozen=True):
    """The daemon answers again. `restarted`: it is another life of it (another epoch)."""

    restarted: bool


Update = cmd.StateMessage | cmd.Batch | cmd.Snapshot | cmd.Lost | LinkLost | LinkUp


def default_who() -> str:
    """user@host, the name others see."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


class DaemonClient:
    """`async with DaemonClient(paths) as client:` attaches, and detaches at the end.

    Args:
        paths: of the daemon.
        who: shown to others; user@host when not given.
        client: what this is (`tui`, `run` …), shown to others.
        observe: attach without the right to command.
        reconnect: come back by itself after a lost link; else `updates` raises then.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        who: str | None = None,
        client: str = "python",
        observe: bool = False,
        reconnect: bool = True,
    ) -> None:
        self._paths = paths
        self._who = who or default_who()
        self._client = client
        self._observe = observe
        self._reconnect = reconnect
        self._link: Link | None = None
        self._welcome: cmd.Welcome | None = None
        self._following: dict[str, int] = {}
        self._leases: dict[str, int] = {}
        self._parts: dict[str, list[bytes]] = {}
        self._queue: list[Update] = []
        self._arrived = asyncio.Event()
        self._failure: InspectError | None = None
        self._keeper: asyncio.Task[None] | None = None

    # Life -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._attach()
        self._keeper = asyncio.create_task(self._keep())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._keeper is not None:
                self._keeper.cancel()
                await asyncio.gather(self._keeper, return_exceptions=True)
            self._give_back()
        finally:
            self._detach("detached")

    @property
    def welcome(self) -> cmd.Welcome:
        """What the daemon said at hello."""
        if self._welcome is None:
            raise no_daemon(self._paths.name)
        return self._welcome

    @property
    def state(self) -> State:
        """The latest state."""
        return self._state

    @property
    def connected(self) -> bool:
        """The link stands, as far as is known."""
        return self._link is not None

    async def _attach(self) -> None:
        link = Link(endpoint_of(self._paths), self._received)
        try:
            await link.connected(CONNECT_S)
            hello = cmd.Hello(
                min=codec.MAJOR,
                max=codec.MAJOR,
                caps=list(codec.CAPS),
                client=f"{self._client} {__version__}",
                who=self._who,
                want="observe" if self._observe else "control",
                resume=None if self._welcome is None else self._welcome.viewer,
            )
            check_message(hello)
            answer = await link.request(hello, CONNECT_S)
        except TimeoutError:
            link.close()
            raise no_answer(self._paths.name) from None
        except BaseException:
            link.close()
            raise
        if isinstance(answer, cmd.Refuse):
            link.close()
            raise InspectError(
                f"{answer.text}; this viewer speaks {codec.VERSION}",
                "Install the same version on both sides, then llm-inspect daemon restart"
                + name_option(self._paths.name),
                exit_code=Exit.DAEMON,
                code=answer.code,
            )
        assert isinstance(answer, cmd.Welcome)
        if self._welcome is None or answer.viewer != self._welcome.viewer:
            self._leases.clear()
        self._welcome, self._state, self._link = answer, answer.state, link
        for session, start in self._following.items():
            self._subscribe(session, start)

    def _give_back(self) -> None:
        """Whoever leaves leaves nothing behind that others would have to wait for."""
        if self._link is not None:
            for session, number in self._leases.items():
                release = cmd.Lease(
                    cmd=os.urandom(16), session=session, do="release", lease_no=number
                )
                self._link.send(release, session)

    def _detach(self, reason: str) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close(reason)

    async def _keep(self) -> None:
        """Ping; notice a lost link; come back."""
        while True:
            link = self._link
            assert link is not None
            reason = await link.lost(PING_S * MISSED_PINGS, PING_S)
            self._detach(reason)
            self._put(LinkLost(reason))
            if not self._reconnect:
                error = no_answer if reason == SILENT else no_daemon
                self._failure = error(self._paths.name)
                self._arrived.set()
                return
            epoch = self.welcome.ep
            await self._attach_again()
            self._put(LinkUp(self.welcome.ep != epoch))
            self._put(cmd.StateMessage(state=self._state))

    async def _attach_again(self) -> None:
        while True:
            try:
                await self._attach()
                return
            except InspectError:
                await asyncio.sleep(RETRY_S)

    # Requests ---------------------------------------------------------------------------------

    async def command(
        self, do: cmd.AnyCommand, session: str | None = None, at: cmd.At | None = None
    ) -> cmd.Reply:
        """Ask for something to be done; its outcome is an event with `Reply.cmd` as cause.

        Raises InspectError when it is rejected or the daemon cannot be reached; `code` says why.
        """
        message = cmd.Cmd(
            cmd=os.urandom(16),
            epoch=self.welcome.ep,
            do=do,
            session=session,
            lease_no=self._leases.get(session or "", 0),
            at=at,
        )
        return await self._ask_for(message, session)

    async def lease(self, do: LeaseWord, session: str) -> cmd.Reply:
        """Acquire, renew, release or take the right to command a session. It is kept alive while
        this client is attached, and given back when it leaves. Raises as `command` does."""
        number = self._leases.get(session, 0)
        message = cmd.Lease(cmd=os.urandom(16), session=session, do=do, lease_no=number)
        reply = await self._ask_for(message, session)
        if do == "release":
            self._leases.pop(session, None)
        return reply

    def holds(self, session: str | None) -> bool:
        """This client has the lease of the session, as far as it knows."""
        number = self._leases.get(session or "", 0)
        known = next((s for s in self._state.sessions if s.session == session), None)
        if not number or known is None or known.lease_no < number:  # the state comes a bit later
            return number > 0
        return known.lease_no == number and known.holder is not None

    async def _ask_for(self, message: cmd.Cmd | cmd.Lease, session: str | None) -> cmd.Reply:
        reply = await self._request(message, cmd.Reply, session, REPLY_S)
        if reply.status == "rejected":
            old = self._leases.get(session or "", 0) == message.lease_no
            if reply.code in ("stale", "no_lease") and reply.at is None and old:
                self._leases.pop(session or "", None)
            raise InspectError(
                reply.message or reply.code,
                reply.hint,
                exit_code=exit_of(reply.code),
                code=reply.code,
            )
        if reply.lease_no and reply.session is not None:
            self._leases[reply.session] = reply.lease_no
        return reply

    async def ask(self, ask: AnyAsk, session: str | None = None) -> cmd.Answer:
        """Read something. Raises InspectError when it cannot be had; `code` says why."""
        message = cmd.AskRequest(ask=ask, session=session)
        answer = await self._request(message, cmd.Answer, session, ASK_S)
        if answer.code:
            raise InspectError(
                answer.message or answer.code, exit_code=exit_of(answer.code), code=answer.code
            )
        return answer

    async def _request(
        self, message: cmd.Message, kind: type[M], session: str | None, limit_s: float
    ) -> M:
        check_message(message, session)
        link = self._link
        if link is None:
            raise not_sent()
        if link.silent_s > PING_S * MISSED_PINGS:  # this process, or the machine, stood still
            link.fail(SILENT)
            raise not_sent()
        try:
            answer = await link.request(message, limit_s, session)
        except TimeoutError:
            raise InspectError(
                f"no answer from the daemon within {limit_s:.0f} s",
                f"llm-inspect daemon status{name_option(self._paths.name)}",
                exit_code=Exit.DAEMON,
                code="no_answer",
            ) from None
        assert isinstance(answer, kind)
        return answer

    # Following --------------------------------------------------------------------------------

    def follow(self, session: str, start: int = 0, *, snapshot: bool = False) -> None:
        """Have the session's events from `start` on come out of `updates`.

        `snapshot`: a long log may begin with one `Snapshot`, whole (`Columns.of` its bytes), and
        then the events after it.
        """
        self._following[session] = start
        self._parts.pop(session, None)
        void = [u for u in self._queue if isinstance(u, cmd.Batch) and u.session == session]
        self._queue = [u for u in self._queue if u not in void]
        if snapshot and start == 0:
            self._parts[session] = []
        self._subscribe(session, start)

    def unfollow(self, session: str) -> None:
        """Stop that."""
        self._following.pop(session, None)
        self._parts.pop(session, None)
        if self._link is not None:
            self._link.send(cmd.Unsub(session=session))

    def _subscribe(self, session: str, start: int) -> None:
        if self._link is not None:
            late = session in self._parts
            sub = cmd.Sub(session=session, start=start, win_bytes=WINDOW_BYTES, snapshot=late)
            self._link.send(sub)

    async def updates(self) -> AsyncIterator[list[Update]]:
        """Everything that came since the last turn, in order.

        Credit for a list is given back when the next one is asked for. Raises InspectError
        (exit 4) when the link is lost and `reconnect` is off.
        """
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            updates, self._queue = self._queue, []
            if updates:
                yield updates
                self._acknowledge(updates)
            if self._failure is not None and not self._queue:
                raise self._failure

    def _acknowledge(self, updates: list[Update]) -> None:
        reached = {u.session: u.to for u in updates if isinstance(u, cmd.Batch)}
        if self._link is not None:
            for session, upto in reached.items():
                self._link.send(cmd.Ack(session=session, next=upto))

    def _received(self, message: cmd.Message) -> None:
        match message:
            case cmd.StateMessage(state=state):
                self._state = state
                self._put(message)
            case cmd.Batch():
                self._batch(message)
            case cmd.Snapshot():
                self._snapshot(message)
            case cmd.Lost(session=session):
                self._leases.pop(session, None)
                self._put(message)
            case cmd.ErrorMessage(code="no_hello"):
                if self._link is not None:
                    self._link.fail(FORGOTTEN)
            case _:
                pass

    def _snapshot(self, message: cmd.Snapshot) -> None:
        """A part; the whole goes out when the last one is there."""
        parts = self._parts.get(message.session)
        if parts is None or self._link is None:
            return
        if message.part == 0:
            parts.clear()
        if message.part != len(parts):
            return
        parts.append(message.columns)
        self._link.send(cmd.Ack(session=message.session, next=0, parts=len(parts)))
        if len(parts) == message.parts:
            del self._parts[message.session]
            self._following[message.session] = message.seq
            whole = msgspec.structs.replace(message, part=0, parts=1, columns=b"".join(parts))
            self._put(whole)

    def _batch(self, batch: cmd.Batch) -> None:
        expected = self._following.get(batch.session)
        if expected is None:
            return
        if batch.start != expected:
            if batch.session not in self._parts:  # else: of before this was followed anew
                self._subscribe(batch.session, expected)
            return
        self._following[batch.session] = batch.to
        self._parts.pop(batch.session, None)
        self._put(batch)

    def _put(self, update: Update) -> None:
        self._queue.append(update)
        self._arrived.set()
