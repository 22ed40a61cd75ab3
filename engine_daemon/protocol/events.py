"""What happened to a session: the tagged structs that make its log.

An event is packed once by whoever produces it; those bytes go on the wire and into the recording
unchanged. The hub's `seq` stands beside the bytes, never in them. Knows no sockets and no files.

Only additive change: a new field has a default, a kind or key is never used twice.
"""

from typing import Literal

import msgspec

from engine_daemon.protocol.condition_events import ConditionAdded as ConditionAdded
from engine_daemon.protocol.condition_events import ConditionDisabled as ConditionDisabled
from engine_daemon.protocol.condition_events import ConditionRejected as ConditionRejected
from engine_daemon.protocol.condition_events import ConditionRemoved as ConditionRemoved
from engine_daemon.protocol.condition_events import WatchSet as WatchSet
from engine_daemon.protocol.event import Event as Event
from engine_daemon.protocol.event import UnknownEvent as UnknownEvent
from engine_daemon.protocol.prompt_tokens import NO_OFFSET as NO_OFFSET
from engine_daemon.protocol.prompt_tokens import PromptTokens
from engine_daemon.protocol.values import (
    CacheReport,
    Candidates,
    ConditionValue,
    ModelInfo,
    PromptSpec,
    Restored,
    Sampler,
    StopReason,
    Wanted,
    Watched,
    Work,
)

FORMAT = 1
"""Major number of the recording format; a reader refuses a higher one."""

Phase = Literal["prefill", "decode"]
How = Literal["greedy", "sampled", "forced"]
StepStop = Literal["eos", "length", "context", "condition", "user"]


class Opened(Event, frozen=True, kw_only=True, tag="Opened"):
    """Frame 0 of every log. `origin`: the session it was copied from, to go its own way."""

    format: int
    session: str
    created_ns: int
    host: str
    name: str
    tool: str
    title: str
    origin: str = ""


class EngineStarted(Event, frozen=True, kw_only=True, tag="EngineStarted"):
    """The engine that serves the session from here on. `engine` counts starts of the worker;
    `notes`: what to know about how the model was loaded, a sentence each."""

    engine: int
    backend: str
    synthetic: bool
    weights_id: str
    tokenizer_id: str
    eos_ids: list[int]
    model: ModelInfo
    notes: list[str] = msgspec.field(default_factory=list)


class EngineLost(Event, frozen=True, kw_only=True, tag="EngineLost"):
    """The engine died. Exactly one of `signal` (its name) and `exit_code` is set."""

    engine: int
    rank: int
    signal: str | None = None
    exit_code: int | None = None
    message: str = ""


class SessionSet(Event, frozen=True, kw_only=True, tag="SessionSet"):
    """What belongs to the session and not to the daemon; logged once at opening. `run_to`, and
    `wanted` (conditions, watch list) as opened. `prompt` as given, for a daemon that was killed
    before `PromptSet`. `private`: no log is left once it is closed."""

    candidates: int
    cache_mode: Literal["kv", "none"]
    limit_tokens: int | None
    max_steps: int | None
    prompt: PromptSpec | None = None
    run_to: int | None = 0
    wanted: Wanted | None = None
    score_prompt: bool = False
    private: bool = False


class PromptSet(Event, frozen=True, kw_only=True, tag="PromptSet"):
    """The prompt, tokenised.

    `text` is what was tokenised (after the template), as UTF-8; `normalised` what the tokenizer's
    normaliser made of it, when that differs. Columns, one entry a token: `ids` u32, `special` u8,
    `added` u8 (1 = put there by the tokenizer: contributes no text), `starts`/`ends` u32 byte
    offsets into `text` (`NO_OFFSET` = none), `piece_len` u16 and `pieces`.
    """

    text: bytes
    normalised: bytes | None
    template: bool
    seed: int
    warnings: list[str]
    tokenize_ms: float
    ids: bytes
    special: bytes
    added: bytes
    starts: bytes
    ends: bytes
    piece_len: bytes
    pieces: bytes

    def tokens(self) -> PromptTokens:
        """The columns as rows; ValueError when they do not fit each other."""
        return PromptTokens(
            self.ids,
            self.special,
            self.added,
            self.starts,
            self.ends,
            self.piece_len,
            self.pieces,
        )


class PromptRejected(Event, frozen=True, kw_only=True, tag="PromptRejected"):
    """The prompt cannot be used (empty, too long, template failed); the session is closed next."""

    code: str
    message: str
    hint: str = ""


class SamplerSet(Event, frozen=True, kw_only=True, tag="SamplerSet"):
    """The sampler in force from this step on; `salt` as in the rule for the draw."""

    sampler: Sampler
    salt: int = 0


class Commanded(Event, frozen=True, kw_only=True, tag="Commanded"):
    """The hub accepted a command: everyone sees who did what. `op` as in `commands.Command`.

    `goal` is the step that a `run_to` leads to (None = until something stops it); `text` the
    condition of `add_condition`, whose number `remove_condition` has in `id`.
    """

    op: str
    who: str
    goal: int | None = None
    id: int | None = None
    text: str = ""


class Predicted(Event, frozen=True, kw_only=True, tag="Predicted"):
    """Forward done: the distribution for step `step` exists, nothing is picked yet.

    `position` tokens before it; `processed` positions this forward read. `entropy_bits`,
    `logsumexp` (natural), `margin` and `tail_prob` are of the raw distribution; `ties_cut` when
    the K-th candidate's logit equals the next one's. Times in milliseconds; `probe_ms` is the
    cost of looking, `waited_ms` other sessions' turns, `after_pause` marks a forward that came
    right after standing still.
    """

    phase: Phase
    position: int
    processed: int
    candidates: Candidates
    ties_cut: bool
    entropy_bits: float
    logsumexp: float
    margin: float
    tail_prob: float
    forward_ms: float
    probe_ms: float
    tokenize_ms: float = 0.0
    waited_ms: float = 0.0
    ranks_ms: list[float] | None = None
    after_pause: bool = False
    cache: CacheReport
    work: Work
    restored: Restored | None = None
    watched: Watched | None = None


class Prefilled(Event, frozen=True, kw_only=True, tag="Prefilled"):
    """A chunk of a long sequence is read and more follow: `done` of `total` positions.

    The times are this chunk's; the `Predicted` after the last chunk holds the sums.
    """

    done: int
    total: int
    forward_ms: float
    waited_ms: float = 0.0


class PromptScored(Event, frozen=True, kw_only=True, tag="PromptScored"):
    """How likely each token of the prompt was, from the pass that read it.

    One entry a prompt token: `logprobs` f32 (natural, raw; NaN = nothing came before it, so there
    is none), `ranks` u32 (1 + number of strictly greater raw logits; 0 = none).
    """

    logprobs: bytes
    ranks: bytes


class NaiveMeasured(Event, frozen=True, kw_only=True, tag="NaiveMeasured"):
    """One real forward without a cache over the first `length` tokens took `ms`.

    `left` measurements of the same command are still to come.
    """

    length: int
    ms: float
    left: int = 0


class Stepped(Event, frozen=True, kw_only=True, tag="Stepped"):
    """The token of step `step` is part of the sequence.

    `logit` raw, `final_logprob` what the draw used, `rank` 1 + number of strictly greater raw
    logits, `draw` the uniform number u and `before` the final probability of all that come before
    the token in the sampler's order (sampled picks only): u lies in the interval that begins there
    and is as long as its own. `total_ms` is the step's own work:
    tokenize + forward + probe + pick + append.
    """

    id: int
    piece: bytes
    special: bool
    logit: float
    final_logprob: float
    rank: int
    how: How
    draw: float | None = None
    before: float | None = None
    pick_ms: float
    append_ms: float
    total_ms: float
    stop: StepStop | None = None


class Stopped(Event, frozen=True, kw_only=True, tag="Stopped"):
    """The session stands. `pending`: a distribution for `step` exists and nothing is picked.

    `need_bytes`/`have_bytes` only with `no_memory`. With `condition`: its number, its source, and
    the values of its atoms by name. After a condition on the picked token `step` is the one after.
    """

    reason: StopReason
    pending: bool
    message: str = ""
    need_bytes: int | None = None
    have_bytes: int | None = None
    condition: int | None = None
    source: str = ""
    values: dict[str, ConditionValue] = msgspec.field(default_factory=dict)


class Branched(Event, frozen=True, kw_only=True, tag="Branched"):
    """`branch` begins: it leaves `parent` at `step`, and the session stands on it from here on.

    Its path is the parent's before `step`, then its own ids.
    """

    parent: int


class Switched(Event, frozen=True, kw_only=True, tag="Switched"):
    """The session stands on `branch` from here on, at its end (`step`); nothing is computed."""


class Recomputed(Event, frozen=True, kw_only=True, tag="Recomputed"):
    """The logits row of a recorded step is held again; reads on it are answered."""

    restored: Restored


class CacheReleased(Event, frozen=True, kw_only=True, tag="CacheReleased"):
    """Memory this session held was given up because somebody needed it.

    `why`: `parked` (the tail of a branch that was left), `snapshots`, or `cache` (all of it).
    """

    bytes: int
    why: Literal["parked", "snapshots", "cache"]


class Renamed(Event, frozen=True, kw_only=True, tag="Renamed"):
    """The session is called `title` from here on."""

    title: str


class Noted(Event, frozen=True, kw_only=True, tag="Noted"):
    """Somebody wrote a note at this branch and step."""

    who: str
    text: str


class Closed(Event, frozen=True, kw_only=True, tag="Closed"):
    """Last frame of a log that was closed cleanly. `count` events came before it."""

    count: int
    by: str


class Reopened(Event, frozen=True, kw_only=True, tag="Reopened"):
    """The log was taken up again by daemon life `epoch`; `lost_bytes` a torn tail cut off."""

    epoch: bytes
    lost_bytes: int


EVENTS: tuple[type[Event], ...] = (
    Opened,
    EngineStarted,
    EngineLost,
    SessionSet,
    PromptSet,
    PromptRejected,
    SamplerSet,
    Commanded,
    Predicted,
    Stepped,
    Stopped,
    Closed,
    Reopened,
    ConditionAdded,
    ConditionRejected,
    ConditionRemoved,
    ConditionDisabled,
    WatchSet,
    Branched,
    Switched,
    Recomputed,
    CacheReleased,
    Prefilled,
    PromptScored,
    NaiveMeasured,
    Renamed,
    Noted,
)
"""Every kind of event; the codec and the golden files go by this table."""
