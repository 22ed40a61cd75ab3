"""One-shot commands on a session: pause, resume, step, close, force.

Each waits for its outcome in the session's log (`resume`: for the reply) and says it in a line.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Final

from engine_daemon.addressing import attach_line, find_session
from engine_daemon.cli.following import Updates
from engine_daemon.cli.leave import QUIET_S
from engine_daemon.cli.options import Given
from engine_daemon.cli.output import say, tell
from engine_daemon.cli.request import who
from engine_daemon.cli.run import FAULTS, disk_full
from engine_daemon.cli.sessions import closed_session
from engine_daemon.cli.target import Target, target_of
from engine_daemon.client import DaemonClient
from engine_daemon.errors import Exit, InspectError
from engine_daemon.export.text import readable
from engine_daemon.options import COUNT, whole
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.commands import (
    AnyCommand,
    At,
    Batch,
    Close,
    Force,
    ForceText,
    Pause,
    RunTo,
    Snapshot,
    next_chunk,
)
from engine_daemon.protocol.events import Closed, Commanded, PromptSet, Stepped, Stopped
from engine_daemon.protocol.reads import AskEncode
from engine_daemon.protocol.state import SessionInfo
from engine_daemon.protocol.values import PromptSpec
from engine_daemon.recording.columns import Columns

SLOW_S: Final = 3.0
"""How long an outcome may take before who waits is told."""


def main(command: str, arguments: list[str], given: Given) -> int:
    """Carry out `command` on the session named first in `arguments`."""
    count = 1
    if command == "step" and len(arguments) > 1:
        try:
            count = whole(1, COUNT)(arguments[1])
        except ValueError as error:
            raise InspectError(f"N {error}") from None
    if command == "force" and (given.token_id is None) == (given.text is None):
        raise InspectError("force needs --id ID or --text TEXT, one of them")
    return asyncio.run(_carry_out(command, arguments[0], count, given))


async def _carry_out(command: str, wanted: str, count: int, given: Given) -> int:
    target = target_of(given)
    async with DaemonClient(
        target.paths, who=who(given), client=command, reconnect=False
    ) as client:
        try:
            found = find_session(client.state.sessions, wanted)
        except InspectError as error:
            raise closed_session(target, wanted) or error from None
        with _how_to_take(target, found.session):
            if given.take:
                await client.lease("take", found.session)
            return await _command(command, client, found, count, given)


@contextlib.contextmanager
def _how_to_take(target: Target, session: str) -> Iterator[None]:
    """A command refused for want of the lease: say how it is had. Never taken unasked, be it from
    a screen of the same person: two of them would step on each other's toes."""
    try:
        yield
    except InspectError as error:
        if error.code == "no_lease":
            screen = attach_line(target.paths.name, session)
            error.hint = f"Add --take to take it for this command, or take it with L on {screen}"
        raise


async def _command(
    command: str, client: DaemonClient, found: SessionInfo, count: int, given: Given
) -> int:
    watch = _Watch(client, found)
    await watch.catch_up()
    place = watch.columns.place
    at = At(branch=place.branch, step=place.step)
    match command:
        case "pause":
            await watch.pause()
        case "resume":
            await client.command(RunTo(step=None), found.session, at)
            tell(f"{found.session} goes on from step {place.step}")
            return 0
        case "close":
            await watch.send(Close(), None)
        case "step":
            # From an ended session the first step is the forward that was not spent yet.
            ahead = count if place.kind == "pending" else count - 1
            do = RunTo(step=place.step + ahead)
            await watch.send(next_chunk(place, count) if place.kind == "prefill" else do, at)
        case "force":
            await watch.send(await _forcing(client, given), at)
        case _:
            raise AssertionError(command)
    return watch.report()


async def _forcing(client: DaemonClient, given: Given) -> Force | ForceText:
    """What to force: an id, or the tokens of a text one after the other."""
    if given.text is None:
        assert given.token_id is not None
        return Force(id=given.token_id)
    answer = await client.ask(AskEncode(prompt=PromptSpec(text=given.text.encode())))
    prompt = unpack_event(answer.prompt or b"")
    assert isinstance(prompt, PromptSet)
    ids = [token.id for token in prompt.tokens() if not token.added]
    if not ids:
        raise InspectError("there is nothing to force in an empty text")
    return Force(id=ids[0]) if len(ids) == 1 else ForceText(ids=ids)


class _Watch:
    """Follows a session's log until a command's outcome is in it."""

    def __init__(self, client: DaemonClient, found: SessionInfo) -> None:
        self.columns = Columns()
        self._client = client
        self._found = found
        self._updates = Updates(client)
        self._outcome: Stopped | Closed | None = None
        self._cause: bytes | None = None
        self._commanded = False
        self._asked_at = 0
        self._said = False
        self._last: Stepped | None = None
        client.follow(found.session, snapshot=True)

    async def catch_up(self) -> None:
        """Read the log up to where the state said it was."""
        while self.columns.next < self._found.head:
            await self._read()

    async def _read(self, limit_s: float | None = None) -> bool:
        """Take what comes next of the log; False when nothing came within the limit. What the
        daemon says of its state meanwhile, be it often, is no word of the session."""
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            updates = await self._updates.next(left)
            if updates is None:
                return False
            came = [update for update in updates if isinstance(update, Snapshot | Batch)]
            for update in came:
                if isinstance(update, Snapshot):
                    self.columns = Columns.of(update.columns)
                else:
                    for seq, packed in update.ev:
                        self._take(seq, packed)
            self._check_log()
            if came:
                return True

    def _take(self, seq: int, packed: bytes) -> None:
        event = self.columns.apply(seq, packed)
        match event:
            case Commanded() if event.cause is not None and event.cause == self._cause:
                self._commanded, self._asked_at = True, seq
            case Stepped() if self._commanded:
                self._last = event
            case Closed() if self._cause is not None:  # an older one: the log was opened again
                self._outcome = event
            case Stopped() if self._commanded:
                self._outcome = self._outcome or event
            case _:
                pass

    def _check_log(self) -> None:
        """No outcome comes of a log that cannot be written. A word of the state that is older than
        the command does not count: there was room for the command."""
        if not self._commanded or self._outcome is not None:
            return
        for info in self._client.state.sessions:
            if info.session == self._found.session and info.trouble and info.head > self._asked_at:
                raise disk_full(info)

    async def send(self, do: AnyCommand, at: At | None) -> None:
        """Give the command and wait for its outcome."""
        reply = await self._client.command(do, self._found.session, at)
        self._cause = reply.cmd
        while self._outcome is None:
            await self._patiently()

    async def _patiently(self) -> None:
        """Take what comes next; say so once when that takes long."""
        came = await self._read(None if self._said else SLOW_S)
        if not came:
            self._said = True
            name = self._found.session
            engine = self._client.state.engine
            why = f": {engine.message}" if engine.word == "stuck" else ""
            say(f"{name} was asked; the engine has not got there yet{why} (ctrl+c leaves it asked)")

    async def pause(self) -> None:
        """Pause; a session that stands already stays as it is."""
        reply = await self._client.command(Pause(), self._found.session)
        self._cause = reply.cmd
        while self._outcome is None:
            if self._commanded:
                await self._patiently()
            elif not await self._read(QUIET_S) and self.columns.status != "running":
                return

    def report(self) -> int:
        """Say where the session stands now; the exit code."""
        place, session = self.columns.place, self._found.session
        outcome = self._outcome
        if isinstance(outcome, Closed) and outcome.by == "daemon":
            raise InspectError(
                f"the daemon was stopped while {session} was on its way",
                "The session opens again at the daemon's next start",
                exit_code=Exit.DAEMON,
                code="link_lost",
            )
        if isinstance(outcome, Closed):
            limits = self.columns.limits
            private = limits is not None and limits.private
            tell(f"{session} is closed; its recording {'is gone' if private else 'stays'}")
            return Exit.DONE
        if outcome is not None and outcome.reason in FAULTS:
            raise InspectError(
                f"{session} stopped at step {place.step}: {outcome.message or outcome.reason}",
                exit_code=FAULTS[outcome.reason],
                code=outcome.reason,
            )
        picked = f", after {readable(self._last.piece)!r}" if self._last is not None else ""
        stands = "ended" if place.kind == "ended" else "stands"
        reason = f" ({place.reason})" if place.reason else ""
        read = f", {place.done} of {place.total} read" if place.kind == "prefill" else ""
        tell(f"{session} {stands} at step {place.step}{reason}{picked}{read}")
        return Exit.DONE
