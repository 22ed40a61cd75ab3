"""Attach to a daemon: typed commands in, typed updates out, over one DEALER socket.

Works inside one asyncio loop. Knows the wire and the guards of a viewer (nothing queues while the
hub is away, commands carry the place they are meant for); nothing of screens, recordings or torch.
"""

import asyncio
import os
import time
from types import TracebackType
from typing import Final, Self, TypeVar

from engine_daemon import __version__
from engine_daemon.errors import Exit, InspectError, not_sent
from engine_daemon.following import Following
from engine_daemon.following import Update as Update
from engine_daemon.link import (
    FORGOTTEN,
    GONE,
    SILENT,
    Link,
    check_message,
    default_who,
    exit_of,
    refused,
)
from engine_daemon.lookup import endpoint_of, is_running, no_daemon, silent
from engine_daemon.mending import LinkLost as LinkLost
from engine_daemon.mending import LinkUp as LinkUp
from engine_daemon.mending import Mender, Tunnel
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
AGAIN_S: Final = 2.0
"""How long a command that lost its link looks for the daemon, which may be about to leave."""
WINDOW_BYTES: Final = 2 * 1024 * 1024
REMOTE_WINDOW_BYTES: Final = 256 * 1024
"""Credit over ssh: what is under way there is in front of every answer."""

M = TypeVar("M", bound=cmd.Message)


class DaemonClient(Following):
    """`async with DaemonClient(paths) as client:` attaches, and detaches at the end.

    Args:
        paths: of the daemon.
        who: shown to others; user@host when not given.
        client: what this is (`tui`, `run` …), shown to others.
        observe: attach without the right to command.
        reconnect: come back by itself after a lost link; else `updates` raises then.
        tunnel: what the daemon is reached through, where it is on another machine.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        who: str | None = None,
        client: str = "python",
        observe: bool = False,
        reconnect: bool = True,
        tunnel: Tunnel | None = None,
    ) -> None:
        self._paths = paths
        self._mender = None if tunnel is None else Mender(tunnel)
        self._who = who or default_who()
        self._client = client
        self._observe = observe
        self._reconnect = reconnect
        super().__init__(WINDOW_BYTES if tunnel is None else REMOTE_WINDOW_BYTES)
        self._welcome: cmd.Welcome | None = None
        self._leases: dict[str, int] = {}
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
    def observes(self) -> bool:
        """The daemon lets this viewer watch and nothing else, whatever it asked for."""
        return self._welcome is not None and self._welcome.role == "observer"

    @property
    def me(self) -> bytes | None:
        """This client among `state.viewers`; None until it is attached."""
        return None if self._welcome is None else self._welcome.viewer

    @property
    def connected(self) -> bool:
        """The link stands, as far as is known."""
        return self._link is not None

    async def _attach(self) -> None:
        link = Link(endpoint_of(self._paths), self._received, again=self._reconnect)
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
            raise silent(self._paths) from None
        except BaseException:
            link.close()
            raise
        if isinstance(answer, cmd.Refuse):
            link.close()
            raise refused(answer, self._paths.name)
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
            silent = reason == SILENT or link.silent_s > PING_S * MISSED_PINGS
            if self._mender is not None and reason in (GONE, SILENT):
                lost = await self._mender.lost(silent)
            else:
                lost = LinkLost(reason, self._what_helps(reason))
            self._detach(lost.reason)
            self._put(lost)
            epoch = self.welcome.ep
            if self._reconnect:
                await self._attach_again()
            else:
                self._failure = await self._attach_once_more(epoch)
            if self._failure is not None:
                self._detach("detached")
                self._arrived.set()
                return
            self._put(LinkUp(self.welcome.ep != epoch))
            self._put(cmd.StateMessage(state=self._state))

    def _what_helps(self, reason: str) -> str:
        """What a person does about a daemon on this machine that is gone, or silent."""
        if self._paths.endpoint is not None or reason == FORGOTTEN:
            return ""
        if reason == SILENT:
            return silent(self._paths).hint
        return f"llm-inspect daemon start{name_option(self._paths.name)} brings it back"

    async def _attach_again(self) -> None:
        while True:
            try:
                if self._mender is not None:
                    await self._mender.mend(self._put)
                await self._attach()
                return
            except InspectError:
                await asyncio.sleep(RETRY_S)

    async def _attach_once_more(self, epoch: bytes) -> InspectError | None:
        """To the same daemon, if it is there: this process may have stood still, and nothing is
        wrong. Else why not."""
        name, deadline = self._paths.name, time.monotonic() + AGAIN_S
        while True:
            try:
                await self._attach()
                return None if self.welcome.ep == epoch else _anew(name)
            except InspectError as error:
                if self._paths.endpoint is None and not is_running(self._paths):
                    return no_daemon(name)
                if self._paths.endpoint is not None or time.monotonic() > deadline:
                    return error
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
            t_ns=self._hub_ns,
        )
        return await self._ask_for(message, session)

    async def lease(self, do: LeaseWord, session: str) -> cmd.Reply:
        """Acquire, renew, release or take the right to command a session. It is kept alive while
        this client is attached, and given back when it leaves. Raises as `command` does."""
        number = self._leases.get(session, 0)
        message = cmd.Lease(
            cmd=os.urandom(16), session=session, do=do, lease_no=number, t_ns=self._hub_ns
        )
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

    @property
    def _hub_ns(self) -> int:
        """When a command is sent, by the hub's clock: it refuses what comes much later."""
        return 0 if self._link is None else self._link.hub_ns

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
            case cmd.Removed(session=session):
                self._following.pop(session, None)
                self._put(message)
            case cmd.ErrorMessage(code="no_hello"):
                if self._link is not None:
                    self._link.fail(FORGOTTEN)
            case _:
                pass


def _anew(name: str) -> InspectError:
    return InspectError(
        f"the daemon {name} was started anew meanwhile",
        f"Its sessions are kept as far as they came: llm-inspect sessions list{name_option(name)}",
        exit_code=Exit.DAEMON,
        code="link_lost",
    )
