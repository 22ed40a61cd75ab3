"""What the screen shows of one session: its columns, the cursor, and the latest state.

The one store that panes read. Local and synchronous: nothing here waits for anybody. Knows events;
no sockets, no widgets.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from engine_daemon.protocol.codec import WireError, unpack_event
from engine_daemon.protocol.events import EngineStarted, Predicted, Stepped
from engine_daemon.protocol.prompt_tokens import PromptTokens
from engine_daemon.protocol.state import EngineState, SessionInfo, State
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.rows import NO_ID, Flag
from tui.behind import Behind
from tui.overlay import Overlay
from tui.pieces import piece_or_mark
from tui.playing import Replay

_KEPT_BYTES: Final = 32 * 1024 * 1024
"""Packed events kept for looking back without asking."""
_LOST: Final = int(Flag.LOST)
_SPECIAL: Final = int(Flag.SPECIAL)
_NO_SPEED: Final = int(Flag.LOST | Flag.PREFILL | Flag.RESTORED)
"""What says nothing of a decode step's time: a restored one may have cost a copy only."""
_RATE_STEPS: Final = 32
"""Steps the speed is taken over."""


@dataclass(frozen=True, slots=True)
class Detail:
    """A step in full: its distribution and, once picked, its token."""

    step: int
    predicted: Predicted
    stepped: Stepped | None


class View:
    """One session on the screen.

    Attributes:
        session: whose columns these are; None before any is chosen.
        cursor: the step looked at; None follows the head.
        link: False while the daemon cannot be reached; `link_text` says why, `link_hint` what
            helps.
        where: which daemon it is, where that is not the usual one of this machine.
        me: this viewer among those of the state.
        holds: whether this viewer has the lease of a session; `taken_by`: who took one from it,
            `removed_by`: who removed its recording (empty: somebody), until that is said.
        observing: this viewer only watches.
        behind: how far this is behind the session.
        opening: a session was asked for and is not there yet.
        overlay: what was read of a step, shown beside its candidates.
        replay: set where a recording is shown, not a session of a daemon.
        wanted: events to ask for, of the step that was last looked at in vain.
    """

    def __init__(self) -> None:
        self.session: str | None = None
        self.columns = Columns()
        self.state: State | None = None
        self.cursor: int | None = None
        self.link = True
        self.link_text = self.link_hint = self.where = ""
        self.newer_daemon = False
        self.wanted: list[int] = []
        self.me: Callable[[], bytes | None] = lambda: None
        self.holds: Callable[[str | None], bool] = lambda session: False
        self.taken_by: list[str] = []
        self.removed_by: list[str] = []
        self.observing = self.opening = False
        self.overlay: Overlay | None = None
        self.replay: Replay | None = None
        self.behind = Behind()
        self._packed: OrderedDict[int, bytes] = OrderedDict()
        self._packed_bytes = 0
        self._last: Detail | None = None
        self._last_seqs: tuple[int, ...] = ()

    def show(self, session: str | None, columns: Columns) -> None:
        """Another session from here on, followed at its head."""
        self.session, self.columns = session, columns
        self.behind = Behind()
        self.cursor, self.wanted, self.overlay = None, [], None
        self._packed.clear()
        self._packed_bytes = 0
        self._last, self._last_seqs = None, ()

    # Cursor -----------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """The head moves."""
        return self.columns.status == "running"

    @property
    def busy(self) -> bool:
        """It does not run, yet something is under way that a pause ends: a long prompt is read,
        or forwards are measured."""
        columns = self.columns
        reads = columns.status == "waiting" and columns.place.kind == "prefill"
        return reads or columns.measuring > 0

    @property
    def head(self) -> int:
        """The newest step to look at: the pending one while it stands, else the last picked."""
        steps = len(self.columns)
        if self.columns.pending is not None and (steps == 0 or not self.running):
            return steps
        return max(steps - 1, 0)

    @property
    def at(self) -> int:
        """The step under the cursor."""
        return self.head if self.cursor is None else min(self.cursor, self.head)

    @property
    def at_head(self) -> bool:
        """The cursor is where the next token will be."""
        return self.at >= self.head

    @property
    def recorded_step(self) -> int | None:
        """The step under the cursor when its token is picked already and it is looked back at."""
        return self.at if self.at < len(self.columns) else None

    @property
    def path(self) -> tuple[Columns, int]:
        """Changes when another sequence is on screen, not when it grows."""
        return self.columns, self.columns.turned

    @property
    def shown_overlay(self) -> Overlay | None:
        """What was read of the step under the cursor, under the sampler that is in force."""
        found, columns = self.overlay, self.columns
        if found is None or (found.branch, found.step) != (columns.branch, self.at):
            return None
        return found if found.sampler == columns.sampler else None

    @property
    def over(self) -> bool:
        """A recording is shown that nobody writes any more: nothing more is coming."""
        return self.replay is not None and not self.replay.growing

    @property
    def on_pending(self) -> bool:
        """The cursor is on a distribution of which nothing is picked."""
        return self.columns.pending is not None and self.at == len(self.columns)

    @property
    def forcible(self) -> bool:
        """A candidate of what is on screen can be appended: the one answer for keys and words.

        At a step that is recorded it begins a branch.
        """
        stands = self.columns.status in ("paused", "ended") and self.replay is None
        stands = stands and not self.read_only
        return stands and (self.on_pending or self.recorded_step is not None)

    def move(self, step: int) -> None:
        """Put the cursor on `step`; at the head it follows."""
        step = max(step, 0)
        self.cursor = None if step >= self.head else step

    # One step ---------------------------------------------------------------------------------

    def keep(self, events: Iterable[tuple[int, bytes]]) -> None:
        """Remember packed events, the oldest making room."""
        for seq, packed in events:
            if seq not in self._packed:
                self._packed_bytes += len(packed)
            self._packed[seq] = packed
        while self._packed_bytes > _KEPT_BYTES and len(self._packed) > 2:
            _, dropped = self._packed.popitem(last=False)
            self._packed_bytes -= len(dropped)

    def detail(self, step: int) -> Detail | None:
        """The step in full, or None while its events are not here (then they are `wanted`)."""
        columns = self.columns
        if step >= len(columns):
            pending = columns.pending
            return None if pending is None else Detail(step, pending, None)
        seqs = (columns.seq_predicted[step], columns.seq_stepped[step])
        if seqs == self._last_seqs:
            return self._last
        found = [self._packed.get(seq) for seq in seqs]
        if None in found:
            missing = [seq for seq, packed in zip(seqs, found, strict=True) if packed is None]
            self.wanted = [] if columns.flags[step] & _LOST else missing
            return None
        self.wanted = []
        self._last_seqs = seqs
        self._last = self._unpack(step, [packed for packed in found if packed is not None])
        return self._last

    def _unpack(self, step: int, packed: list[bytes]) -> Detail | None:
        try:
            predicted, stepped = (unpack_event(one) for one in packed)
        except WireError:
            return None
        if isinstance(predicted, Predicted) and isinstance(stepped, Stepped):
            return Detail(step, predicted, stepped)
        return None

    @property
    def shown(self) -> Detail | None:
        """The step under the cursor, in full."""
        return self.detail(self.at)

    # The sequence -----------------------------------------------------------------------------

    @property
    def prompt(self) -> PromptTokens:
        """The prompt's tokens."""
        return self.columns.prompt_tokens

    def prompt_score(self, index: int) -> tuple[float | None, int | None]:
        """Probability and rank of a prompt token, where the prompt was scored."""
        logprobs, ranks = self.columns.prompt_scores
        if index >= len(logprobs) or logprobs[index] != logprobs[index]:
            return None, None
        return math.exp(min(logprobs[index], 0.0)), ranks[index]

    def token(self, index: int) -> tuple[bytes, bool]:
        """Piece and whether it is special, of a token of the sequence, prompt included. One that is
        lost is no part of the text either."""
        prompt = self.columns.prompt_tokens
        if index < len(prompt):
            return prompt.shown(index)
        step = index - len(prompt)
        special = self.columns.flags[step] & _SPECIAL or self.columns.ids[step] == NO_ID
        return piece_or_mark(self.columns, step), bool(special)

    @property
    def whole_length(self) -> int:
        """Tokens in the sequence."""
        return len(self.columns.prompt_tokens) + len(self.columns)

    @property
    def length(self) -> int:
        """Tokens that are shown: in a replay those up to the step under the cursor."""
        whole = self.whole_length
        if self.replay is None or not self.replay.veiled:
            return whole
        return min(len(self.columns.prompt_tokens) + self.at + 1, whole)

    @property
    def steps(self) -> int:
        """Steps that are shown, as `length`."""
        return max(self.length - len(self.columns.prompt_tokens), 0)

    def text(self) -> bytes:
        """Prompt and continuation as the model saw and wrote them, with a mark where some of it is
        lost."""
        columns = self.columns
        steps = enumerate(columns.contributed())
        parts = (piece_or_mark(columns, k) if columns.ids[k] == NO_ID else one for k, one in steps)
        return (b"" if columns.prompt is None else columns.prompt.text) + b"".join(parts)

    # State ------------------------------------------------------------------------------------

    @property
    def engine(self) -> EngineState | None:
        """The engine as last heard."""
        return None if self.state is None else self.state.engine

    @property
    def engine_back(self) -> bool:
        """An engine is ready, and it is not the one whose loss stopped the session (whose state is
        still the last one heard where the log is ahead of it)."""
        engine, columns = self.engine, self.columns
        if engine is None or engine.word not in ("ready", "busy") or not self.link:
            return False
        stop, lost = columns.stop, columns.lost
        if stop is None or lost is None or stop.message != lost.message:
            return True
        return engine.engine != lost.engine

    @property
    def info(self) -> SessionInfo | None:
        """What the daemon says of this session; None when it is not among the open ones."""
        if self.state is None:
            return None
        return next((s for s in self.state.sessions if s.session == self.session), None)

    @property
    def read_only(self) -> bool:
        """The session was made with another model than the one that is loaded: no command of it
        can reach the engine."""
        return self.info is not None and self.info.other_model

    @property
    def made_by(self) -> EngineState | EngineStarted | None:
        """Whose numbers are on screen: the engine's, of a read-only session the recorded one's."""
        recorded = self.columns.engine
        return recorded if self.read_only and recorded is not None else self.engine

    @property
    def resident(self) -> bool:
        """The engine holds something of the session; of a replay nobody says that it does not."""
        return self.info is None or self.info.resident

    @property
    def pausing(self) -> bool:
        """It was asked to pause and does not stand yet."""
        return self.running and self.info is not None and self.info.pausing

    @property
    def lease(self) -> Literal["free", "ours", "other"]:
        """Who may command the session on screen."""
        info = self.info
        if self.session is not None and self.holds(self.session):
            return "ours"
        return "free" if info is None or info.holder is None else "other"

    @property
    def viewers(self) -> int:
        """Attached ones that look at the session on screen, this one included; of the daemon where
        there is no session."""
        people = [] if self.state is None else self.state.viewers
        if self.session is None:
            return len(people)
        return max(sum(self.session in one.sessions for one in people), 1)

    @property
    def others(self) -> bool:
        """Somebody else is there, or was and did something."""
        return self.viewers > 1 or len({act.who for act in self.columns.acts}) > 1

    def speed(self) -> float | None:
        """Tokens a second over the last decode steps, other sessions' turns included."""
        columns, spent, steps = self.columns, 0.0, 0
        last = len(columns) - 1 if self.replay is None else min(self.at, len(columns) - 1)
        for step in range(last, max(last - _RATE_STEPS, -1), -1):
            if columns.flags[step] & _NO_SPEED:
                continue
            spent += columns.total_ms[step] + columns.waited_ms[step]
            steps += 1
        return steps / spent * 1000 if spent > 0 else None
