"""A session as its log tells it: a fold over events, the same for hub, viewer and reader.

Knows events and their order; no files, no sockets, no screen. Candidates are not kept: whoever
needs those of a committed step asks for the event by `seq_predicted`.
"""

from collections.abc import Iterable
from typing import Final, Literal, Self

import msgspec

from engine_daemon.protocol.codec import WireError, unpack_event
from engine_daemon.protocol.events import (
    Branched,
    CacheReleased,
    Closed,
    Commanded,
    ConditionAdded,
    ConditionDisabled,
    ConditionRejected,
    ConditionRemoved,
    EngineLost,
    EngineStarted,
    Event,
    How,
    NaiveMeasured,
    Noted,
    Opened,
    Predicted,
    Prefilled,
    PromptRejected,
    PromptScored,
    PromptSet,
    Recomputed,
    Renamed,
    Reopened,
    SamplerSet,
    SessionSet,
    Stepped,
    StepStop,
    Stopped,
    Switched,
    UnknownEvent,
    WatchSet,
)
from engine_daemon.protocol.image import Image
from engine_daemon.protocol.packing import pack_ints, unpack_ints
from engine_daemon.protocol.prompt_tokens import PromptTokens
from engine_daemon.protocol.state import Place, SessionWord
from engine_daemon.recording.checks import check_prompt, check_scores
from engine_daemon.recording.known import Known
from engine_daemon.recording.paths import how_of
from engine_daemon.recording.rows import Rows

_ENDS: Final = ("eos", "length", "context")
_MOVING: Final = ("open", "run_to", "force", "force_text", "resample")
"""Commands after which the session runs until `Stopped`."""
_CACHE_GONE: Final = ("no_memory", "error", "engine_lost")
"""Reasons to stop after which what was read of a long sequence is read again."""
_LOST_ROWS_LIMIT: Final = 1_000_000
"""More lost steps than this in one hole are a broken number, not a hole."""


class GapError(Exception):
    """An event that is not the next one; `expected` is the one to ask for."""

    def __init__(self, expected: int, seq: int) -> None:
        super().__init__(f"event {seq} came where {expected} was expected")
        self.expected = expected
        self.seq = seq


class Columns(Known):
    """Everything known of one session: last-known values, and one row a committed step.

    Attributes:
        next: the `seq` that `apply` expects.
        title: what it is called: as it was opened, or renamed.
        stop: why the session stands; None before it first did here, and while it runs.
        goal: step that the command in force leads to (None: until something stops it).
        pending: the distribution at the head, of which nothing is picked yet.
        seq_pending: its `seq`.
        seq_engine: `seq` of the engine's last start; what it predicted before, it holds no more.
        strays: events that did not fit the path; they lie in the log and nowhere here.
        last_stop: `stop` of the last committed step.
        conditions: in force by number, `disabled` those of them that were given up and why.
        watch: the watched tokens; None when nobody watches any.
        fired: (step, number) of every stop at a condition; the step it was true of; `fired_on` the
            branch, `fired_here` those on this path.
        scored: how likely the prompt was; `prompt_scores` has it as lists.
        notes: what people wrote at steps; `acts`: the last commands, and who gave them.
        failed: the error that one of `acts` ended in, by its `t_ns`.
        naive: (length, ms) of each forward without cache that was measured.
        measuring: measurements still to come.
        complete: False when events were skipped, so that rows may be missing numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.next = 0

    def __bool__(self) -> bool:
        """True also before the first step: a session without steps is a session."""
        return True

    # Folding ----------------------------------------------------------------------------------

    def apply(self, seq: int, packed: bytes) -> Event | UnknownEvent:
        """Fold one event in, and give it unpacked.

        Raises GapError when it is not the next one, WireError when it is no event; both leave
        everything as it was.
        """
        if seq != self.next:
            raise GapError(self.next, seq)
        event = unpack_event(packed)
        self.fold(seq, event)
        return event

    def fold(self, seq: int, event: Event | UnknownEvent) -> None:
        """`apply` for who has the event unpacked already; raises alike."""
        if seq != self.next:
            raise GapError(self.next, seq)
        if isinstance(event, PromptSet):
            check_prompt(event)
        if isinstance(event, PromptScored):
            check_scores(event)
        self.next = seq + 1
        if not isinstance(event, UnknownEvent):
            self._fold(seq, event)

    def extend(self, batch: Iterable[tuple[int, bytes]]) -> list[Event | UnknownEvent]:
        """Fold a batch in; what is before the one that raises is folded."""
        return [self.apply(seq, packed) for seq, packed in batch]

    def skip(self, to: int) -> None:
        """Events [next, to) are lost: go on at `to`. A step that lost one is flagged `LOST`."""
        if to > self.next:
            self.next = to
            self.complete = False

    def _fold(self, seq: int, event: Event) -> None:
        match event:
            case Opened():
                self.opened, self.title = event, event.title
            case EngineStarted():
                self.engine, self.lost, self.seq_engine = event, None, seq
            case EngineLost():
                self.lost = event
                self._read, self.measuring = None, 0
            case Prefilled():
                self._read = event
            case PromptScored():
                self.score(event)
            case NaiveMeasured():
                self.naive.append((event.length, event.ms))
                # One that was under way when the rest was cancelled still comes.
                self.measuring = event.left if self.measuring else 0
            case SessionSet():
                self.limits = event
            case PromptSet():
                self.prompt, self._prompt_tokens = event, None
            case PromptRejected():
                self.rejected = event
            case SamplerSet():
                self.sampler, self.salt = event.sampler, event.salt
                self.last_salt = max(self.last_salt, event.salt)
            case Commanded():
                self._command(event)
            case Predicted():
                self._predict(seq, event)
            case Stepped():
                self._step(seq, event)
            case Stopped():
                self._running = False
                self.stop = event if event.branch == self.branch else self.stop
                self._note_fired(event)
                self.note_failed(event)
                if event.reason in _CACHE_GONE:
                    self._read, self.measuring = None, 0
            case ConditionAdded() | ConditionRemoved() | ConditionDisabled() | ConditionRejected():
                self._condition(event)
            case WatchSet():
                self.watch = event if event.tokens else None
            case Branched():
                self._branch(event)
            case Switched():
                self._switch(event)
            case CacheReleased(why=why):
                if why == "cache":
                    self._read = None
            case Renamed(title=title):
                self.title = title
            case Noted():
                self.notes.append(event)
                self.acts.append(event)
            case Recomputed():
                pass
            case Closed():
                self.closed, self._running = True, False
            case Reopened():
                self.closed, self._running = False, False
                self._read, self.measuring = None, 0
            case _:
                raise AssertionError(f"no arm for {type(event).__name__}")

    def _command(self, event: Commanded) -> None:
        self.acts.append(event)
        if event.op == "measure_naive":
            self.measuring = event.goal or 1
        elif event.op == "pause":
            self.measuring = 0
        if event.op in _MOVING:
            self.goal = event.goal
            self._running = not (event.op == "open" and event.goal == 0)
            self._stood, self.stop = self.stop or self._stood, None

    def _branch(self, event: Branched) -> None:
        """The path up to the step is the parent's; nothing stands there before a `Predicted`."""
        if self.has_branch(event.branch) or not self.has_branch(event.parent):
            self.strays += 1
            return
        self.go_to(event.parent)
        self._read, self.measuring = None, 0
        low = self.start(event.parent)
        if event.step < low or (event.step > len(self) and not self._fill(event.step)):
            self.strays += 1
            return
        self.begin(event.branch, event.step)

    def _switch(self, event: Switched) -> None:
        if self.has_branch(event.branch):
            self._read, self.measuring = None, 0
            self.go_to(event.branch)
        else:
            self.strays += 1

    def _condition(
        self, event: ConditionAdded | ConditionRemoved | ConditionDisabled | ConditionRejected
    ) -> None:
        match event:
            case ConditionAdded(number=number):
                self.conditions[number] = event
                self.next_condition = max(self.next_condition, number + 1)
            case ConditionRemoved(number=number):
                self.conditions.pop(number, None)
                self.disabled.pop(number, None)
            case ConditionDisabled(number=number, message=message):
                self.disabled[number] = message
            case ConditionRejected():
                self.refused = event

    def _note_fired(self, stopped: Stopped) -> None:
        """A condition on the picked token was true one step before the place it stands at."""
        if stopped.condition is not None:
            committed = not stopped.pending or self.last_stop == "condition"
            self.fired.append((max(stopped.step - committed, 0), stopped.condition))
            self.fired_on.append(stopped.branch)

    def _predict(self, seq: int, event: Predicted) -> None:
        """The last one for a step before its pick counts."""
        if event.branch != self.branch or event.step < len(self) or not self._fill(event.step):
            self.strays += 1
            return
        self.pending, self.seq_pending = event, seq
        self._predicted_once = True
        self._read = None

    def _step(self, seq: int, event: Stepped) -> None:
        if event.branch != self.branch or event.step < len(self) or not self._fill(event.step):
            self.strays += 1
            return
        if self.pending is not None and self.seq_pending is not None:
            self.add_step(event, seq, self.pending, self.seq_pending)
        else:
            self.add_unpredicted(event, seq)
        self.pending = self.seq_pending = None
        self._predicted_once = True
        self.last_stop = event.stop

    def append_steps(self, rows: Rows, seq: int, last_stop: StepStop | None) -> None:
        """Fold whole steps in whose rows are made: events `seq` on, two each, of the branch stood
        on and from its next step on."""
        self.append_rows(rows)
        self.pending = self.seq_pending = self._read = None
        self._predicted_once = True
        self.last_stop = last_stop
        self.next = seq + 2 * len(rows)

    def _fill(self, step: int) -> bool:
        """Rows for the lost steps before `step`; False when it cannot come next."""
        missing = step - len(self)
        if missing and (self.complete or missing > _LOST_ROWS_LIMIT):
            return False
        if missing:
            self.pending = self.seq_pending = self.last_stop = None
        for _ in range(missing):
            self.add_lost()
        return True

    # Image ------------------------------------------------------------------------------------

    def image(self) -> bytes:
        """Everything up to `next`, packed: for who was not there from the beginning."""
        image = Image(next=self.next, known=self.known(), tree=self.tree())
        return msgspec.msgpack.encode(image)

    @classmethod
    def of(cls, packed: bytes) -> Self:
        """Columns that go on where the image was made. WireError when it is none."""
        made = cls()
        try:
            image = msgspec.msgpack.decode(packed, type=Image)
            made.next = image.next
            made.recall(image.known)
            made.grow(image.tree)
        except (ValueError, KeyError, RecursionError, MemoryError) as error:
            raise WireError("bad_body", f"not an image of a session: {error}") from None
        return made

    # Where it stands --------------------------------------------------------------------------

    @property
    def place(self) -> Place:
        """Where the session stands or is under way to: `step` is the next one to be picked."""
        step = len(self)
        if self._read is not None:
            done, total = self._read.done, self._read.total
            return Place(kind="prefill", branch=self.branch, step=step, done=done, total=total)
        if not self._predicted_once:
            return Place()
        if self.pending is None and self.last_stop in _ENDS:
            reason = str(self.last_stop)
            return Place(kind="ended", branch=self.branch, step=step, reason=reason)
        return Place(kind="pending", branch=self.branch, step=step)

    @property
    def over(self) -> Literal["eos", "length", "context"] | None:
        """Why the sequence ended where the session stands; None while a token can come next."""
        last = self.last_stop if self.place.kind == "ended" else None
        return last if last in ("eos", "length", "context") else None

    @property
    def status(self) -> SessionWord:
        """The session's word as `state` shows it."""
        if self.closed:
            return "closed"
        kind = self.place.kind
        if kind == "waiting":
            return "waiting" if self.stop is None else "paused"
        if self._running:
            return "running"
        if kind == "prefill" and self.stop is None:
            return "waiting"
        return "ended" if kind == "ended" else "paused"

    # The path ---------------------------------------------------------------------------------

    @property
    def prompt_tokens(self) -> PromptTokens:
        """The prompt's tokens as rows; empty before there is a prompt."""
        if self._prompt_tokens is None:
            self._prompt_tokens = PromptTokens() if self.prompt is None else self.prompt.tokens()
        return self._prompt_tokens

    @property
    def prompt_ids(self) -> list[int]:
        """The prompt's ids; empty before there is a prompt."""
        return [] if self.prompt is None else unpack_ints("I", self.prompt.ids)

    @property
    def prompt_scores(self) -> tuple[list[float], list[int]]:
        """Log-probability (NaN: none) and rank (0: none) of each prompt token; empty lists when
        the prompt was not scored."""
        return self._prompt_scores

    def path_ids(self) -> list[int]:
        """Every id of the sequence: the prompt's, then the generated ones (`NO_ID`: lost)."""
        return [*self.prompt_ids, *self.ids]

    def generated_packed(self) -> bytes:
        """The generated ids as a u32 column."""
        return pack_ints("I", self.ids)

    def text(self) -> bytes:
        """What the generated tokens add to the text."""
        return b"".join(self.contributed())

    def how(self, step: int) -> How:
        """How the token of this step was picked."""
        return how_of(self.flags[step])
