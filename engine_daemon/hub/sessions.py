"""Sessions of one daemon: each a log, the columns folded from it, and what the engine holds.

Everything about a session comes from its log; this file creates, re-opens and appends to logs. It
does not decide what a command may do (`control`) and sends nothing.
"""

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypedDict

from engine_daemon.errors import Exit, InspectError
from engine_daemon.hub.durability import Syncer
from engine_daemon.paths import Paths, host
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.codec import WireError, pack_event
from engine_daemon.protocol.packing import pack_floats
from engine_daemon.protocol.state import SessionInfo
from engine_daemon.protocol.values import ConditionSpec, Leading, PromptSpec, Stops, Wanted
from engine_daemon.protocol.worker import OpenSession
from engine_daemon.recording.bulk import fold_run
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.ending import HISTORY, is_history
from engine_daemon.recording.folder import SUFFIX, recordings_in
from engine_daemon.recording.identity import new_session
from engine_daemon.recording.writer import LogError, LogWriter, cannot_write

TITLE_CHARACTERS: Final = 60
_READ_BYTES: Final = 1024 * 1024

_log = logging.getLogger(__name__)


class Stamp(TypedDict):
    """The fields that every event has."""

    t_ns: int
    wall_ns: int
    cause: bytes | None


def stamp(cause: bytes | None = None) -> Stamp:
    """Now, and the command that led to it."""
    return {"t_ns": time.monotonic_ns(), "wall_ns": time.time_ns(), "cause": cause}


class Session:
    """One open session.

    `resident`: the worker holds it; `cache_gone`: but its cache was needed elsewhere.
    `placed` counts events of the worker's current hold on it.
    `unsent` is the prompt still to be tokenised. `engine_logged` the engine start last written to
    this log. `goal` is what the opening command wants of the first distribution; `closing` (by
    whom, the command) that it is to be closed as soon as it stands; `stalled` why the log could
    not be written. `unresolved` are conditions to be turned into tokens, `resolving` while that
    goes on. `timed`: its time limit was set, `deadline` when it ends, `timed_out` that it ended
    before the first distribution. `used`: when it last had an event or a viewer. `pausing`: it was
    asked to stand and does not yet.
    """

    def __init__(self, session: str, log: LogWriter, columns: Columns, syncer: Syncer) -> None:
        self.id = session
        self.log = log
        self.columns = columns
        self.resident = False
        self.cache_gone = False
        self.placed = 0
        self.unsent: PromptSpec | None = None
        self.opened_by: bytes | None = None
        self.goal: int | None = 0
        self.engine_logged = 0
        self.closing: tuple[str, bytes] | None = None
        self.stalled = ""
        self.closed_at: float | None = None
        self.unresolved: Wanted | None = None
        self.resolving = False
        self.timed = False
        self.timed_out = False
        self.deadline: float | None = None
        self.used = time.monotonic()
        self.pausing = False
        self._syncer = syncer

    @property
    def title(self) -> str:
        """What it is called on screen."""
        return self.columns.title

    @property
    def open(self) -> bool:
        """True until it was closed."""
        return self.closed_at is None

    def append(self, event: ev.Event) -> None:
        """Log an event of the hub's own."""
        self.append_packed(pack_event(event))

    def append_packed(self, packed: bytes) -> ev.Event | ev.UnknownEvent:
        """Log an event and fold it; `LogFull` when the disk refuses, and nothing changed."""
        seq = self.log.append(packed)
        event = self.columns.apply(seq, packed)
        self.used = time.monotonic()
        self.pausing = self.pausing and self.columns.status in ("running", "waiting")
        self._syncer.mark(self.id, self.log)
        return event

    def settle(self) -> bool:
        """Log the stop that did not fit the disk; False while it still does not."""
        if not self.stalled:
            return True
        place, pending = self.columns.place, self.columns.pending is not None
        stopped = ev.Stopped(
            reason="disk_full",
            pending=pending,
            message=self.stalled,
            branch=place.branch,
            step=place.step,
            **stamp(),
        )
        try:
            self.append(stopped)
        except LogError:
            return False
        self.stalled = ""
        return True

    def durable(self) -> int:
        """Events known to be on disk."""
        return self._syncer.durable(self.id)

    def close(self, by: str, now: float, cause: bytes | None = None) -> None:
        """Write `Closed`; the log stays readable until `release`.

        A private one is taken out of the folder first: a daemon killed meanwhile leaves none.
        """
        limits = self.columns.limits
        if limits is not None and limits.private and by in HISTORY:
            self.log.path.unlink(missing_ok=True)
        self.append(ev.Closed(count=self.log.head, by=by, **stamp(cause)))
        self.closed_at = now
        _log.info("session %s: closed, %d events (%s)", self.id, self.log.head, by)

    def release(self) -> None:
        """Sync and close the file; nothing can be read from it after."""
        self._syncer.forget(self.id)
        self.log.close()

    def opening_message(
        self,
        *,
        restored: bool,
        limit_tokens: int | None,
        conditions: list[ConditionSpec],
        watch: bytes,
        earlier: Leading | None,
    ) -> OpenSession:
        """What brings the worker to where the log ends."""
        columns, prompt, limits = self.columns, self.columns.prompt, self.columns.limits
        if prompt is None or limits is None:
            raise InspectError("the session has no prompt yet", code="busy")
        return OpenSession(
            session=self.id,
            branch=columns.place.branch,
            prompt_ids=prompt.ids,
            ids=columns.generated_packed(),
            sampler=columns.sampler,
            salt=columns.salt,
            candidates=limits.candidates,
            cache_mode=limits.cache_mode,
            limit_tokens=limit_tokens,
            max_steps=limits.max_steps,
            tokenize_ms=prompt.tokenize_ms,
            restored=restored,
            cause=self.opened_by,
            stands=restored or self.goal == 0,
            stops=Stops(
                conditions=conditions,
                watch=watch,
                total_ms=pack_floats("f", (ms for ms in columns.total_ms if ms == ms)),
                score=limits.score_prompt and columns.scored is None,
                earlier=earlier,
                ended=columns.over,
            ),
        )

    def info(self, other_model: bool, lease: tuple[int, str | None]) -> SessionInfo:
        """The session as `state` tells it; `lease`: its number and holder."""
        opened = self.columns.opened
        return SessionInfo(
            session=self.id,
            title=self.title,
            status="paused" if self.stalled else self.columns.status,
            place=self.columns.place,
            resident=self.resident and not self.cache_gone,
            head=self.log.head,
            created_ns=opened.created_ns if opened else 0,
            other_model=other_model,
            lease_no=lease[0],
            holder=lease[1],
            trouble=self.stalled,
            pausing=self.pausing,
            stop=self.columns.stop.reason if self.columns.stop else "",
        )


class SessionStore:
    """All sessions this daemon knows, by id; creates and re-opens their logs."""

    def __init__(self, paths: Paths, epoch: bytes, tool: str, syncer: Syncer) -> None:
        self._paths = paths
        self._epoch = epoch
        self._tool = tool
        self._syncer = syncer
        self._sessions: dict[str, Session] = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def get(self, session: str | None) -> Session | None:
        """The session, open or lately closed."""
        return None if session is None else self._sessions.get(session)

    def path(self, session: str) -> Path:
        """Where its log lies."""
        return self._paths.recordings / f"{session}{SUFFIX}"

    def create(self, title: str) -> Session:
        """A new log with its first frame written; `LogFull` when the disk refuses."""
        try:
            self._paths.recordings.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(self._paths.recordings, error) from error
        session = new_session()
        opened = ev.Opened(
            format=ev.FORMAT,
            session=session,
            created_ns=time.time_ns(),
            host=host(),
            name=self._paths.name,
            tool=self._tool,
            title=title[:TITLE_CHARACTERS],
            t_ns=time.monotonic_ns(),
            wall_ns=time.time_ns(),
        )
        packed = pack_event(opened)
        log = LogWriter.create(self.path(session), packed)
        columns = Columns()
        columns.apply(0, packed)
        found = Session(session, log, columns, self._syncer)
        self._sessions[session] = found
        self._syncer.mark(session, log)
        _log.info("session %s: opened", session)
        return found

    def reopen_all(self) -> None:
        """Take up every log of this host and name that no user and no `run` closed."""
        for path in recordings_in(self._paths.recordings):
            try:
                if not is_history(path):
                    self._reopen(path)
            except (OSError, InspectError, WireError) as error:
                _log.warning("not re-opened: %s", error)

    def take_up(self, name: str) -> Session:
        """Open the log of a session that is not open; raises as `LogWriter.reopen` does, and where
        it ends before its prompt: whoever asks for it would wait for ever."""
        self.let_go(name)
        return self._reopen(self.path(name), begun=True)

    def let_go(self, name: str) -> None:
        """Hold the log of a session no longer that was closed a moment ago."""
        known = self._sessions.get(name)
        if known is not None and not known.open:
            known.release()
            del self._sessions[name]

    def _reopen(self, path: Path, *, begun: bool = False) -> Session:
        """`begun`: it must have come to what the session is to do."""
        log = LogWriter.reopen(path, owner=(host(), self._paths.name))
        try:
            columns = _fold(log)
            if columns.prompt is None and columns.place.kind != "waiting":
                why = f"{path.stem} cannot be continued: it has steps and no prompt"
                raise LogError(why, exit_code=Exit.DAEMON, code="damaged")
            if begun and _lacks_prompt(columns):
                why = f"{path.stem} cannot be continued: it ends before its prompt"
                raise LogError(why, exit_code=Exit.DAEMON, code="damaged")
            session = Session(path.stem, log, columns, self._syncer)
            was_running = columns.status == "running"
            session.append(ev.Reopened(epoch=self._epoch, lost_bytes=log.lost_bytes, **stamp()))
            _log.info("session %s: taken up, %d events", session.id, log.head)
            if was_running:
                place, pending = columns.place, columns.pending is not None
                session.append(
                    ev.Stopped(
                        reason="engine_lost",
                        pending=pending,
                        message="the daemon was restarted",
                        branch=place.branch,
                        step=place.step,
                        **stamp(),
                    )
                )
        except BaseException:
            self._syncer.forget(path.stem)
            log.close()
            raise
        if columns.prompt is None and columns.limits is not None:
            session.unsent = columns.limits.prompt
        session.unresolved = _unresolved(columns)
        session.timed = True  # the time limit was of the daemon that opened it
        self._sessions[path.stem] = session
        return session

    def forget_closed(self, followed: set[str], now: float, keep_s: float) -> None:
        """Let go of closed sessions that nobody follows any more."""
        for session in self:
            if session.closed_at is None or session.id in followed:
                continue
            if now - session.closed_at > keep_s:
                session.release()
                del self._sessions[session.id]

    def close_all(self, by: str, now: float) -> None:
        """The daemon leaves: end every log cleanly."""
        for session in self:
            try:
                if session.open:
                    session.close(by, now)
                session.release()
            except LogError as error:
                _log.error("closing %s: %s", session.id, error)
        self._sessions.clear()


def _unresolved(columns: Columns) -> Wanted | None:
    """What the opening command wanted and a daemon that was killed early did not come to."""
    wanted = None if columns.limits is None else columns.limits.wanted
    if wanted is None:
        return None
    until = wanted.until[columns.next_condition - 1 :]
    watch = wanted.watch if columns.watch is None and columns.status == "waiting" else []
    return Wanted(until=until, watch=watch) if until or watch else None


def _lacks_prompt(columns: Columns) -> bool:
    """Nothing in it says what the session is to do: it would wait for ever."""
    given = None if columns.limits is None else columns.limits.prompt or columns.prompt
    return given is None


def _fold(log: LogWriter) -> Columns:
    columns = Columns()
    while columns.next < log.head:
        events = log.read(columns.next, log.head, _READ_BYTES)
        fold_run(columns, columns.next, [packed for _, packed in events])
    if not columns.complete:
        raise WireError("bad_body", f"{log.path} holds something that is no event")
    return columns
