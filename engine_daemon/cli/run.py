"""`run`: one session without a screen, from its opening to its end (CONTRACT sections 2 and 3).

Knows the life of a run: what ends it, and what is said then. The lines are `export.jsonl`'s, the
bytes the printer's.
"""

import asyncio
import contextlib
import os
from typing import Final

from engine_daemon.addressing import attach_line
from engine_daemon.cli.following import Updates
from engine_daemon.cli.interrupts import Interrupts
from engine_daemon.cli.leave import Leave
from engine_daemon.cli.options import Given
from engine_daemon.cli.output import say
from engine_daemon.cli.overdue import Overdue
from engine_daemon.cli.printer import JsonPrinter, Printer, StdoutClosed, TextPrinter
from engine_daemon.cli.progress import LoadProgress
from engine_daemon.cli.prompt import read_prompt
from engine_daemon.cli.record import Recorder
from engine_daemon.cli.request import open_command, who
from engine_daemon.cli.signals import interrupted_code, take_sighup
from engine_daemon.cli.target import Target, attached_or_gone, on_running, target_of
from engine_daemon.cli.why import Typed, why
from engine_daemon.client import DaemonClient, Update
from engine_daemon.errors import Exit, InspectError
from engine_daemon.export.jsonl import JsonLines
from engine_daemon.launch import load_error
from engine_daemon.link import exit_of
from engine_daemon.lookup import is_running
from engine_daemon.paths import with_name
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.commands import Batch, Close, Lost, Open, StateMessage
from engine_daemon.protocol.events import (
    Branched,
    Closed,
    Commanded,
    ConditionDisabled,
    Event,
    PromptRejected,
    Stopped,
    Switched,
    UnknownEvent,
)
from engine_daemon.protocol.state import SessionInfo, State

FAULTS: Final = {
    "no_memory": Exit.MODEL,
    "error": Exit.ENGINE,
    "engine_lost": Exit.ENGINE,
    "disk_full": Exit.DAEMON,
}
"""Reasons to stop that are faults, and what a command exits with."""
LEASE_CODES: Final = ("no_lease", "stale")
"""What a command is refused with whose sender may not give it (now)."""
_ENDS: Final = ("eos", "length", "context", "condition", "timeout")
_TICK_S: Final = 0.25
_CLOSE_S: Final = 2.0


def main(arguments: list[str], given: Given) -> int:
    """`run PROMPT`."""
    prompt = read_prompt(arguments, given)
    if prompt is None:
        raise InspectError("run needs a prompt", "llm-inspect run PROMPT, or --prompt-file FILE")
    command = open_command(given, prompt, run=True)
    target = target_of(given)
    take_sighup()
    printer: Printer = JsonPrinter()
    if not given.json:
        printer = TextPrinter(echo=given.echo, loads=not is_running(target.paths))
    with Recorder(given.record, private=given.private) as recorder:
        try:
            code = on_running(
                target, lambda: asyncio.run(_run(target, given, command, printer, recorder))
            )
        except InspectError as error:
            error.hint = with_name(error.hint, target.paths.name)
            printer.error(error)
            raise
        try:
            recorder.check()
        except InspectError as cut:
            if code == Exit.DONE:
                raise
            say(f"{cut.message}. {cut.hint}")  # how the run ended is told by its own exit code
        return code


async def _run(
    target: Target, given: Given, command: Open, printer: Printer, recorder: Recorder
) -> int:
    interrupts = Interrupts()
    try:
        client = DaemonClient(target.paths, who=who(given), client="run", reconnect=False)
        async with attached_or_gone(client):
            interrupts.hold()
            reply = await client.command(command)
            assert reply.session is not None
            client.follow(reply.session)
            run = Run(client, reply.session, printer, recorder, Typed.of(given))
            interrupts.lead_to(run.interrupted)
            try:
                return await run.to_its_end(keep=given.keep)
            finally:
                if run.stays_open:
                    line = attach_line(target.paths.name, reply.session)
                    say(f"the session stays open: {line}")
    except asyncio.CancelledError:
        if not interrupts.came:
            raise
        return interrupted_code()


class Run:
    """One run, from the accepted `open` on. `stays_open`: worth saying how to come back."""

    def __init__(
        self,
        client: DaemonClient,
        session: str,
        printer: Printer,
        recorder: Recorder,
        typed: Typed,
    ) -> None:
        self.stays_open = False
        self._typed = typed
        self._overdue = Overdue(typed.timeout_s)
        self._code = Exit.DONE
        self._client = client
        self._session = session
        self._printer = printer
        self._recorder = recorder
        self._lines = JsonLines(only=0)
        self._progress = LoadProgress()
        self._leave = Leave(client, session)
        self._rejected: InspectError | None = None
        self._unwritable: InspectError | None = None
        self._paused_by = ""
        self._asides: list[str] = []
        self._waits = ""
        self._stuck = False
        self._done = False
        self._closed = False
        self._left = False

    async def to_its_end(self, *, keep: bool) -> Exit:
        """Print the session's events until it is over or somebody ends the run; the exit code."""
        updates = Updates(self._client)
        try:
            self._look(self._client.state)
            while not (self._done or self._closed or self._left):
                await self._turn(await updates.next(_TICK_S) or [])
                self._check_time()
            if keep and not self._closed:
                self.stays_open = True
            elif not self._left:
                await self._close(updates)
            if self._unwritable is not None:
                raise self._unwritable
            return self._leave.code if self._left else self._code
        except InspectError as error:
            self._faulted(error)
            raise
        finally:
            self._progress.close()
            self._say()
            await updates.close()
            await self._leave.forget()

    async def _turn(self, updates: list[Update]) -> None:
        for update in updates:
            match update:
                case StateMessage(state=state):
                    self._look(state)
                case Batch():
                    self._take(update)
                case Lost(by=by):
                    taken = f"the lease of the session was taken by {by}; the run waits for them"
                    self._asides.append(taken)
                case _:
                    pass
        await self._let_go()
        over = self._done or self._closed or self._left
        if not over and self._leave.pointless(
            self._lines.columns.status, self._has_engine, self._stuck
        ):
            self._go()
        if self._asides:
            self._printer.aside()
        try:
            await self._printer.flush()
        except StdoutClosed as closed:
            self._unwritable = closed.failure
            self._leave.begin(Exit.DONE)
        self._say()

    def _say(self) -> None:
        """What is for people, after the text that came before it."""
        for words in self._asides:
            say(words)
        self._asides.clear()

    async def _let_go(self) -> None:
        """A run that waits commands nothing: whoever paused it may have it go on."""
        if self._waits:
            with contextlib.suppress(InspectError):
                await self._client.lease("release", self._session)
            self._asides.append(self._waits)
            self._waits = ""

    def _take(self, batch: Batch) -> None:
        for seq, packed in batch.ev:
            if cut := self._recorder.write(seq, packed):
                self._asides.append(cut)
            event = unpack_event(packed)
            for line in self._lines.feed(seq, event):
                self._progress.close()
                if line["event"] != "error":  # said once, at the end, with its exit code
                    self._printer.line(line)
            if _concerns(event):
                self._printer.event(event)
                self._judge(event)
            elif isinstance(event, Branched | Switched):
                went = f"somebody went to branch {event.branch}; the run waits for branch 0"
                self._asides.append(went)

    def _look(self, state: State) -> None:
        """Show how the model loads while the session waits for it; give up when it cannot, or
        when the session's log cannot be written."""
        info = next((s for s in state.sessions if s.session == self._session), None)
        if info is not None and info.trouble and not (self._done or self._closed):
            raise disk_full(info)
        self._tell_stuck(state)
        if self._lines.columns.status == "waiting":
            if state.engine.word == "dead" and not state.engine.details.again:
                raise load_error(state)
            if not self._has_engine:
                self._progress.update(state)

    def _check_time(self) -> None:
        if not (self._done or self._closed or self._leave.wanted):
            engine = self._client.state.engine
            loaded = self._lines.columns.engine is not None or engine.word in ("ready", "busy")
            self._overdue.check(engine, asyncio.get_running_loop().time(), loaded=loaded)

    def _tell_stuck(self, state: State) -> None:
        """Once for each time: it may wake, and is never ended by a run."""
        stuck = state.engine.word == "stuck"
        if stuck and not self._stuck:
            self._progress.close()
            self._asides.append(f"{state.engine.message}; the run waits. {state.engine.hint}")
        self._stuck = stuck

    @property
    def _has_engine(self) -> bool:
        """The session has its engine, or is about to be told of it."""
        loaded = self._client.state.engine.word in ("ready", "busy", "stuck")
        return loaded or self._lines.columns.engine is not None

    # What ends it -----------------------------------------------------------------------------

    def _judge(self, event: Event | UnknownEvent) -> None:
        match event:
            case Commanded(op="pause", who=name):
                self._paused_by = name
                self._leave.pause_logged = True
            case PromptRejected(code=code, message=message, hint=hint):
                self._rejected = InspectError(message, hint, exit_code=exit_of(code), code=code)
            case Stopped():
                self._stopped(event)
            case ConditionDisabled(number=number, message=message):
                self._asides.append(f"condition {number}: {message}")
            case Closed():
                self._was_closed()
            case _:
                pass

    def _stopped(self, stopped: Stopped) -> None:
        if stopped.reason in FAULTS:
            (line,) = self._lines.stopped_lines(stopped)
            full = stopped.reason == "disk_full"
            raise InspectError(
                str(line["message"]),
                f"Free some space, then: llm-inspect resume {self._session}" if full else "",
                exit_code=FAULTS[stopped.reason],
                code=stopped.reason,
            )
        limits = self._lines.columns.limits
        at_limit = limits is not None and limits.max_steps == len(self._lines.columns.path(0))
        cause = why(stopped, self._lines.columns, self._typed)
        if cause:
            self._asides.append(cause)
        if stopped.reason in _ENDS or (stopped.reason == "goal" and at_limit):
            self._code = self._verdict(stopped)
            self._end(self._lines.stopped_lines(stopped))
        elif self._leave.wanted:
            self._go()
        else:
            self._waits = self._standing(stopped)
            self._paused_by = ""

    def _standing(self, stopped: Stopped) -> str:
        """Others paused or stepped it: what is said of that. Whoever closes it stops it first,
        which is told as an end."""
        at, waits = f"at step {stopped.step}", "; the run waits until it goes on"
        if stopped.message:
            return f"stopped {at}: {stopped.message}"
        if stopped.reason != "pause":
            return f"stands {at}{waits}"
        return f"paused by {self._paused_by} {at}{waits}" if self._paused_by else ""

    def _verdict(self, stopped: Stopped) -> Exit:
        """What the command exits with after an end that is no fault."""
        if stopped.reason == "timeout":
            return Exit.TIMEOUT
        failed = stopped.condition is not None and stopped.condition <= self._typed.failing
        return Exit.DIFFERENT if failed else Exit.DONE

    def _was_closed(self) -> None:
        """By this run after its end, or by somebody before it."""
        self._closed = True
        if self._rejected is not None:
            raise self._rejected
        if not self._done:
            self._end(self._lines.ending())

    def _end(self, lines: list[dict[str, object]]) -> None:
        for line in lines:
            self._printer.line(line)
        self._printer.end()
        self._done = True

    async def _close(self, updates: Updates) -> None:
        """Close the session and take its last event; whatever goes wrong now changes nothing."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                if not self._closed:
                    await self._client.command(Close(by="run"), self._session)
                while not self._closed:
                    await self._turn(await updates.next() or [])
        except (InspectError, TimeoutError) as error:
            if isinstance(error, InspectError) and error.code in LEASE_CODES:
                say(f"not closed: {error.message}")
                self.stays_open = True

    # Leaving before the end -------------------------------------------------------------------

    def interrupted(self) -> None:
        """A signal that ends it: pause, then leave; a second one leaves at once."""
        if not self._leave.begin(interrupted_code()):
            self._progress.close()
            say(f"left before the session {self._session} stood still")
            os._exit(interrupted_code())

    def _go(self) -> None:
        """The session stands: say where, and leave it open."""
        pending = self._lines.pending_line()
        if pending is not None:
            self._printer.line(pending)
        self._printer.end()
        self._left = self.stays_open = True

    def _faulted(self, error: InspectError) -> None:
        """Whether the session can be come back to after this error."""
        waiting = self._lines.columns.status == "waiting"
        lost_model = waiting and error.exit_code is Exit.MODEL
        self.stays_open = not (self._closed or self._rejected or lost_model)


def disk_full(info: SessionInfo) -> InspectError:
    """What to tell who waits for a session whose log cannot be written."""
    return InspectError(
        info.trouble,
        f"Free some space, then: llm-inspect resume {info.session}",
        exit_code=Exit.DAEMON,
        code="disk_full",
    )


def _concerns(event: Event | UnknownEvent) -> bool:
    """A run is about branch 0; a fault on another one ends it too."""
    if isinstance(event, UnknownEvent) or event.branch == 0:
        return True
    return isinstance(event, Stopped) and event.reason in FAULTS
