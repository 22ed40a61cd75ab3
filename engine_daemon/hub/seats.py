"""Sessions in the worker: tokenised, placed, restored, commanded, and what they report logged.

What a command may do is decided in `control`; processes and sockets are `workers`'.
"""

import logging
import time
from collections.abc import Callable

import msgspec

from engine_daemon.hub.breakpoints import Breakpoints, in_force, watched_ids
from engine_daemon.hub.earlier import earlier
from engine_daemon.hub.encoding import Encoder
from engine_daemon.hub.ranks import Loss
from engine_daemon.hub.refusing import Rejected
from engine_daemon.hub.sessions import Session, SessionStore, stamp
from engine_daemon.hub.timeouts import Timeouts
from engine_daemon.protocol import events as ev
from engine_daemon.protocol import values
from engine_daemon.protocol import worker as wire
from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.packing import pack_ints, unpack_ints
from engine_daemon.recording.writer import LogFull

_log = logging.getLogger(__name__)


class Seats:
    """What connects sessions to the engine. `engine` is the number of the worker's start;
    `started` and `tokenizer` are None until they are loaded; `why_not` tells an absent engine."""

    def __init__(
        self,
        store: SessionStore,
        max_context: int | None,
        send: Callable[[str, Message], bool],
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._max_context = max_context
        self._send = send
        self._changed = changed
        self.encoder = Encoder(send)
        self.breakpoints = Breakpoints(self.encoder, send, changed)
        self.timeouts = Timeouts(store, self._time_is_up)
        self.engine = 0
        self.started: wire.EngineReady | None = None
        self.tokenizer: wire.TokenizerReady | None = None
        self.why_not = Rejected("no_engine", "the engine is starting")

    def advance_all(self) -> None:
        """Take every waiting session as far as it can go now."""
        for session in self._store:
            if session.open:
                self.advance(session)

    def advance(self, session: Session) -> None:
        """Tokenise, then place a session that waits."""
        if session.unsent is not None and self.encoder.ready:
            prompt, session.unsent = session.unsent, None
            self.encoder.encode(prompt, lambda encoded: self._prompt_ready(session, encoded))
        if session.unresolved is not None and self.encoder.ready:
            self.breakpoints.resolve_opening(session, self._reject)
        if self.started is not None:
            self.timeouts.start(session, time.monotonic())
        waits = session.columns.status == "waiting" and not session.resident
        waits = waits and session.unresolved is None and not session.resolving
        waits = waits and not self.other_model(session)
        if self.started is None or session.columns.prompt is None or not waits:
            return
        problem = self._length_problem(session, session.columns.prompt)
        if problem is not None:
            self._reject(session, problem)
            return
        self._place(session, restored=False)
        if session.goal != 0:
            self._send("worker", wire.Go(session=session.id, step=session.goal))

    wanted = advance

    def _prompt_ready(self, session: Session, encoded: wire.Encoded) -> None:
        if not session.open:
            return
        if encoded.prompt is None:
            problem = ev.PromptRejected(
                code=encoded.code, message=encoded.message, hint=encoded.hint, **stamp()
            )
            self._reject(session, problem)
            return
        prompt = msgspec.msgpack.decode(encoded.prompt, type=ev.PromptSet)
        wrong = self._length_problem(session, prompt)
        if wrong is not None:
            self._reject(session, wrong)
            return
        seed = session.columns.sampler.seed
        session.append(msgspec.structs.replace(prompt, seed=seed, **stamp(session.opened_by)))
        self._changed()

    def _reject(self, session: Session, problem: ev.PromptRejected) -> None:
        """It is over before it began; one that was never taken up leaves no recording."""
        if session.opened_by is not None:
            session.log.path.unlink(missing_ok=True)
        session.append(problem)
        session.close("rejected", time.monotonic())
        self._changed()

    def _length_problem(self, session: Session, prompt: ev.PromptSet) -> ev.PromptRejected | None:
        count, limit = len(prompt.ids) // 4, self.limit(session)
        if count == 0:
            return ev.PromptRejected(
                code="empty_prompt",
                message="the prompt is empty: there is nothing to predict from",
                hint="Give at least one character",
                **stamp(),
            )
        vocabulary = self.vocabulary()
        highest = max(unpack_ints("I", prompt.ids))
        if vocabulary is not None and highest >= vocabulary:
            return ev.PromptRejected(
                code="bad_prompt",
                message=f"the prompt has the id {highest}; the model's vocabulary ends at"
                f" {vocabulary - 1}",
                hint="These ids belong to another tokenizer",
                **stamp(),
            )
        if limit is not None and count >= limit:
            return ev.PromptRejected(
                code="prompt_too_long",
                message=f"the prompt has {count} tokens; the context holds {limit},"
                " one of them for the next token",
                hint="Shorten it, or raise --max-context up to what the model was made for",
                **stamp(),
            )
        return None

    def limit(self, session: Session) -> int | None:
        """Positions it may grow to: the least of what it, the daemon and the model allow."""
        limits = session.columns.limits
        model = self.tokenizer.context_length if self.tokenizer else None
        loaded = self.started.model.context_length if self.started else None
        asked = limits.limit_tokens if limits else None
        bounds = (asked, self._max_context, model, loaded)
        return min((b for b in bounds if b is not None), default=None)

    def _place(self, session: Session, *, restored: bool) -> None:
        if self.started is None or self.tokenizer is None:
            return
        if session.engine_logged != self.engine:
            session.append(
                ev.EngineStarted(
                    engine=self.engine,
                    backend=self.started.backend,
                    synthetic=self.started.synthetic,
                    weights_id=self.started.weights_id,
                    tokenizer_id=self.tokenizer.tokenizer_id,
                    eos_ids=self.started.eos_ids,
                    model=self.started.model,
                    notes=self.started.notes,
                    **stamp(),
                )
            )
            session.engine_logged = self.engine
        session.placed = 0
        session.resident = True
        message = session.opening_message(
            restored=restored,
            limit_tokens=self.limit(session),
            conditions=in_force(session),
            watch=watched_ids(session),
            earlier=earlier(session) if restored else None,
        )
        self._send("worker", message)

    def log_event(self, session_id: str, packed: bytes) -> int:
        """Log what the worker reports; how many of its events of this session are in by now."""
        session = self._store.get(session_id)
        if session is None or not session.open:
            return 0
        session.placed += 1
        self._log(session, packed)
        return session.placed

    def _log(self, session: Session, packed: bytes) -> None:
        was_waiting = session.columns.status == "waiting"
        try:
            event = session.append_packed(packed)
        except LogFull as error:
            self._disk_failed(session, error)
            return
        columns = session.columns
        # Paused before the first distribution, or on a branch that has just begun.
        stands = columns.status == "paused" and columns.stop is None
        stands = stands or (was_waiting and session.goal == 0)
        if isinstance(event, ev.Predicted) and event.branch == columns.branch and stands:
            self.log_stop(session, "timeout" if session.timed_out else "goal", "", event.cause)
        if isinstance(event, ev.CacheReleased | ev.Predicted):
            session.cache_gone = isinstance(event, ev.CacheReleased) and event.why == "cache"
        if isinstance(event, ev.Stopped) and event.reason in ("no_memory", "error"):
            session.resident = event.reason != "no_memory"
        if isinstance(event, ev.Stopped):
            self._close_if_asked(session)
        self._changed()

    def _time_is_up(self, session: Session) -> None:
        """Stand at the next step; what stands already is told that its time is over."""
        match session.columns.status:
            case "waiting" if session.resident and session.goal != 0:
                self._send("worker", wire.Halt(session=session.id, reason="timeout"))
            case "waiting":
                session.goal, session.timed_out = 0, True
            case "running":
                self._send("worker", wire.Halt(session=session.id, reason="timeout"))
            case "paused":
                self.log_stop(session, "timeout", "")
            case _:
                pass
        self._changed()

    def _close_if_asked(self, session: Session) -> None:
        """The session was told to close while it ran; it stands now."""
        if session.closing is not None and session.open:
            by, cause = session.closing
            self.drop(session)
            session.close(by, time.monotonic(), cause)

    def log_stop(
        self, session: Session, reason: values.StopReason, message: str, cause: bytes | None = None
    ) -> None:
        """Log that the session stands at the place its log ends at."""
        columns = session.columns
        session.append(
            ev.Stopped(
                reason=reason,
                pending=columns.pending is not None,
                message=message,
                branch=columns.place.branch,
                step=columns.place.step,
                **stamp(cause),
            )
        )

    def _disk_failed(self, session: Session, error: LogFull) -> None:
        _log.error("log of %s: %s", session.id, error)
        self.drop(session)
        session.stalled = error.message
        self._changed()
        session.settle()

    # What control asks for ----------------------------------------------------------------------

    def refusal(self, session: Session) -> Rejected | None:
        """Why no command can reach the engine for this session now."""
        if self.started is None:
            return self.why_not
        if self.other_model(session):
            return Rejected(
                "other_model",
                "this session was made with another model; its history is read-only here",
            )
        return None

    def other_model(self, session: Session) -> bool:
        """The log was made with other weights or another tokenizer than are loaded now."""
        engine = session.columns.engine
        if engine is None or self.started is None or self.tokenizer is None:
            return False
        return (engine.weights_id, engine.tokenizer_id) != (
            self.started.weights_id,
            self.tokenizer.tokenizer_id,
        )

    def vocabulary(self) -> int | None:
        """Ids the model has."""
        return self.started.model.vocabulary if self.started else None

    def _ensure_resident(self, session: Session) -> None:
        if not session.resident:
            self._place(session, restored=True)

    def go(self, session: Session, step: int | None, cause: bytes, read: int | None = None) -> None:
        """Commit until pending at `step`, or until `read` positions are read."""
        self._ensure_resident(session)
        self._send("worker", wire.Go(session=session.id, step=step, cause=cause, read=read))

    def measure(self, session: Session, lengths: list[int], cause: bytes) -> None:
        """Measure forwards without cache over so many tokens."""
        self._ensure_resident(session)
        self._send("worker", wire.Measure(session=session.id, lengths=lengths, cause=cause))

    def force(self, session: Session, ids: list[int], cause: bytes) -> None:
        """Commit these ids from the pending step on."""
        self._ensure_resident(session)
        first, then = ids[0], pack_ints("I", ids[1:])
        self._send("worker", wire.ForceId(session=session.id, id=first, then=then, cause=cause))

    def move(self, session: Session, cause: bytes, *, look: bool) -> None:
        """Bring the worker to the path the session stands on."""
        columns = session.columns
        if not session.resident:
            self._place(session, restored=True)
            return
        self._send(
            "worker",
            wire.Move(
                session=session.id,
                branch=columns.branch,
                ids=columns.generated_packed(),
                sampler=columns.sampler,
                salt=columns.salt,
                look=look,
                ended=columns.over,
                cause=cause,
                earlier=earlier(session),
            ),
        )

    def make_row(self, session: Session, branch: int, step: int, cause: bytes) -> None:
        """Make the row of a recorded step again."""
        self._ensure_resident(session)
        ids = pack_ints("I", session.columns.path(branch).ids[:step])
        self._send("worker", wire.MakeRow(session=session.id, branch=branch, ids=ids, cause=cause))

    def resample(self, session: Session, cause: bytes) -> None:
        """The session's sampler is another one; the pending distribution under it, if there is."""
        columns = session.columns
        if not session.resident:
            if columns.place.kind == "pending":
                self._place(session, restored=True)
            return
        self._send(
            "worker",
            wire.Resample(
                session=session.id, sampler=columns.sampler, salt=columns.salt, cause=cause
            ),
        )

    def halt(self, session: Session, cause: bytes) -> None:
        """Stand at the next pending step."""
        session.pausing = session.columns.status in ("running", "waiting")
        self._send("worker", wire.Halt(session=session.id, cause=cause))

    def drop(self, session: Session) -> None:
        """Forget the session in the worker."""
        if session.resident:
            self._send("worker", wire.Drop(session=session.id))
        session.resident = False

    def worker_lost(self, loss: Loss) -> None:
        """Say so in the log of every session that this start of the worker served."""
        self.started = None
        for session in self._store:
            if session.open and session.engine_logged == self.engine:
                try:
                    self._log_loss(session, loss)
                except LogFull as error:
                    _log.error("%s", error.message)

    def _log_loss(self, session: Session, loss: Loss) -> None:
        columns, place = session.columns, session.columns.place
        was_running = columns.status == "running"
        session.resident = False
        session.engine_logged = 0
        session.append(
            ev.EngineLost(
                engine=self.engine,
                rank=loss.rank,
                signal=loss.ending.signal,
                exit_code=loss.ending.exit_code,
                message=str(loss),
                branch=place.branch,
                step=place.step,
                **stamp(),
            )
        )
        if was_running:
            self.log_stop(session, "engine_lost", str(loss))
        self._close_if_asked(session)
