"""What viewers and hub say to each other: message bodies and the commands inside them.

The envelope around them is in `codec`. Knows no sockets.
"""

from typing import Literal

import msgspec

from engine_daemon.protocol.command import At as At
from engine_daemon.protocol.command import Command as Command
from engine_daemon.protocol.filing import Close as Close
from engine_daemon.protocol.filing import Release as Release
from engine_daemon.protocol.filing import Rename as Rename
from engine_daemon.protocol.filing import Reopen as Reopen
from engine_daemon.protocol.reads import AnyAsk
from engine_daemon.protocol.state import Place, State
from engine_daemon.protocol.values import (
    PromptSpec,
    Record,
    Sampler,
    StepFigures,
    TokenFigure,
)
from engine_daemon.protocol.viewing import Lease as Lease
from engine_daemon.protocol.viewing import Lost as Lost
from engine_daemon.protocol.viewing import Message as Message
from engine_daemon.protocol.viewing import Removed as Removed
from engine_daemon.protocol.viewing import Role as Role
from engine_daemon.protocol.viewing import Snapshot as Snapshot

# Commands -------------------------------------------------------------------------------------


class Open(Command, frozen=True, kw_only=True, tag="open"):
    """Open a session. `run_to` 0 stops at the first distribution, None runs until it ends.

    `until` are stop conditions, joined by or, numbered from 1; `watch` texts of tokens whose
    numbers every step carries; `timeout_s` pauses it so long after it was accepted. `private`: the
    daemon keeps no recording once it is closed.
    """

    prompt: PromptSpec
    title: str = ""
    sampler: Sampler = Sampler()
    candidates: int = 20
    cache_mode: Literal["kv", "none"] = "kv"
    max_steps: int | None = None
    limit_tokens: int | None = None
    run_to: int | None = 0
    until: list[str] = msgspec.field(default_factory=list)
    watch: list[bytes] = msgspec.field(default_factory=list)
    timeout_s: float | None = None
    score_prompt: bool = False
    private: bool = False


class RunTo(Command, frozen=True, kw_only=True, tag="run_to"):
    """Go on until the session is pending at `step`; None: until something stops it.

    `read`: while a long sequence is read, stand already when so many positions are.
    """

    step: int | None
    read: int | None = None


class Pause(Command, frozen=True, kw_only=True, tag="pause"):
    """Stand at the next pending step. Always accepted."""


class Force(Command, frozen=True, kw_only=True, tag="force"):
    """Append `id`, whatever its probability: at the pending step, or at a recorded one.

    Here and below: `step` None is the pending step; a recorded one opens a branch there. `branch`
    None is the one the session stands on. The guard `at` is always where the session stands.
    """

    id: int
    step: int | None = None
    branch: int | None = None


class ForceText(Command, frozen=True, kw_only=True, tag="force_text"):
    """Append these ids one after the other, each a forced step: a text somebody typed."""

    ids: list[int]
    step: int | None = None
    branch: int | None = None


class SetSampler(Command, frozen=True, kw_only=True, tag="set_sampler"):
    """Another sampler from the step on; re-evaluates it without a forward."""

    sampler: Sampler
    step: int | None = None
    branch: int | None = None


class Resample(Command, frozen=True, kw_only=True, tag="resample"):
    """Draw the token of a step again, with the session's next unused salt, and append it."""

    step: int | None = None
    branch: int | None = None


class Switch(Command, frozen=True, kw_only=True, tag="switch"):
    """Stand on another branch, at its end."""

    branch: int


class Recompute(Command, frozen=True, kw_only=True, tag="recompute"):
    """Make the logits row of a recorded step again, so that reads on it are answered."""

    step: int
    branch: int | None = None


class AddCondition(Command, frozen=True, kw_only=True, tag="add_condition"):
    """Stop where this becomes true, also while running. The outcome is `ConditionAdded` or
    `ConditionRejected`."""

    source: str


class RemoveCondition(Command, frozen=True, kw_only=True, tag="remove_condition"):
    """Forget this one, also while running."""

    number: int


class SetWatch(Command, frozen=True, kw_only=True, tag="set_watch"):
    """Watch these tokens from the next distribution on, instead of those before."""

    texts: list[bytes]


class StopDaemon(Command, frozen=True, kw_only=True, tag="stop_daemon"):
    """Leave cleanly, within two seconds."""


class MeasureNaive(Command, frozen=True, kw_only=True, tag="measure_naive"):
    """Measure a forward without cache over the first `lengths` tokens, each one a turn.

    Empty: over the whole sequence as it stands. Pausing cancels what is left. Each is told as
    `NaiveMeasured`.
    """

    lengths: list[int] = msgspec.field(default_factory=list)


class KillEngine(Command, frozen=True, kw_only=True, tag="kill_engine"):
    """End the worker, whatever it is at; it is started again. No session: those that ran are paused
    at what is in their logs."""


class Note(Command, frozen=True, kw_only=True, tag="note"):
    """Write a note at a step, pending or recorded; it is logged as `Noted`. Needs no lease."""

    text: str
    step: int | None = None
    branch: int | None = None


class CheckWeights(Command, frozen=True, kw_only=True, tag="check_weights"):
    """Sum the parameters in memory again; `state.engine.weights` tells the outcome. No session."""


AnyCommand = (
    Open
    | RunTo
    | Pause
    | Force
    | ForceText
    | SetSampler
    | Resample
    | Switch
    | Recompute
    | AddCondition
    | RemoveCondition
    | SetWatch
    | Close
    | Reopen
    | Release
    | Rename
    | StopDaemon
    | MeasureNaive
    | CheckWeights
    | KillEngine
    | Note
)

CHUNK = 512
"""Positions of a long sequence that are read in one turn at most."""


def next_chunk(place: Place, count: int = 1) -> RunTo:
    """From `prefill(i of N)`: read `count` chunks more; the last one gives the distribution."""
    return RunTo(step=place.step, read=place.done + (count - 1) * CHUNK + 1)


# Viewer → hub ---------------------------------------------------------------------------------


class Hello(Message, frozen=True, kw_only=True):
    """First words of a viewer. `min`/`max`: protocol majors it speaks."""

    min: int
    max: int
    caps: list[str]
    client: str
    who: str
    want: Literal["observe", "control"] = "control"
    resume: bytes | None = None


class Sub(Message, frozen=True, kw_only=True):
    """Follow a session's log from event `start`; `win_bytes` is the credit. `snapshot`: a long log
    may begin with the session folded."""

    session: str
    start: int = msgspec.field(name="from")
    win_bytes: int
    snapshot: bool = False


class Unsub(Message, frozen=True, kw_only=True):
    """Stop following."""

    session: str


class Ack(Message, frozen=True, kw_only=True):
    """Everything before `next`, and `parts` of the snapshot, arrived: their credit returns."""

    session: str
    next: int
    parts: int = 0


class Cmd(Message, frozen=True, kw_only=True):
    """A command. `cmd` is its idempotency key; `at` is required where it changes the engine.

    `lease_no`: of the lease the sender holds; 0 = none, then a free one is taken with it. `t_ns`:
    the hub's clock when it was sent, as the sender reckons it from what the hub told; 0 = it
    cannot. One that comes long after is refused as `late`.
    """

    cmd: bytes
    epoch: bytes
    do: AnyCommand
    session: str | None = None
    lease_no: int = 0
    at: At | None = None
    t_ns: int = 0


class AskRequest(Message, frozen=True, kw_only=True):
    """A read; answered with `answer` to the header's id."""

    ask: AnyAsk
    session: str | None = None


class Ping(Message, frozen=True, kw_only=True):
    """Liveness of the viewer's loop: its lag in events and its next event."""

    lag: int = 0
    next: int = 0


# Hub → viewer ---------------------------------------------------------------------------------


class Limits(Record, frozen=True, kw_only=True):
    """What the hub refuses beyond, in bytes."""

    body_bytes: int
    text_bytes: int


class Welcome(Message, frozen=True, kw_only=True):
    """The viewer is attached. `t_ns`: the hub's monotonic clock."""

    ver: str
    tool: str
    caps: list[str]
    ep: bytes
    viewer: bytes
    role: Role
    limits: Limits
    state: State
    t_ns: int = 0


class Refuse(Message, frozen=True, kw_only=True):
    """The viewer cannot be attached; `min`/`max` are the hub's protocol majors."""

    code: str
    text: str
    min: int
    max: int


class StateMessage(Message, frozen=True, kw_only=True):
    """Everything that is, now; the last one wins."""

    state: State


class Batch(Message, frozen=True, kw_only=True):
    """Events [`start`, `to`) of a session; `head` = events in the log, `durable` = on disk.

    `ev` holds the very bytes that lie in the log.
    """

    session: str
    start: int = msgspec.field(name="from")
    to: int
    head: int
    durable: int
    ev: list[tuple[int, bytes]]


class Reply(Message, frozen=True, kw_only=True):
    """To a command, at once; its outcome is an event with the command's id as cause.

    `lease_no`: the lease of the session that the sender holds from here on, if any.
    """

    cmd: bytes
    status: Literal["accepted", "rejected"]
    code: str = ""
    message: str = ""
    hint: str = ""
    session: str | None = None
    at: At | None = None
    lease_no: int = 0


class Answer(Message, frozen=True, kw_only=True):
    """To a read: `data` by kind, or `code` `gone|busy|no_engine|bad_arg`.

    `events`: `ev`; `encode`: `prompt` is a packed `PromptSet`; `stacks`: `text`; `token`:
    `tokens`; `whatif` and `preview`: `figures`; `reroll`: `tokens` with their `count`.
    """

    code: str = ""
    message: str = ""
    ev: list[tuple[int, bytes]] | None = None
    prompt: bytes | None = None
    text: str | None = None
    tokens: list[TokenFigure] | None = None
    figures: StepFigures | None = None


class Pong(Message, frozen=True, kw_only=True):
    """Answer to `ping`: log head and durable count of the followed session, the hub's clock."""

    head: int = 0
    durable: int = 0
    t_ns: int = 0


class ErrorMessage(Message, frozen=True, kw_only=True):
    """A message could not be used: `bad_frames`, `bad_body`, `too_big`, `slow_down`, `no_hello`."""

    code: str
    message: str
    limit: int | None = None


FROM_VIEWER: dict[str, type[Message]] = {
    "hello": Hello,
    "sub": Sub,
    "unsub": Unsub,
    "ack": Ack,
    "cmd": Cmd,
    "ask": AskRequest,
    "lease": Lease,
    "ping": Ping,
}
FROM_HUB: dict[str, type[Message]] = {
    "welcome": Welcome,
    "refuse": Refuse,
    "state": StateMessage,
    "batch": Batch,
    "snapshot": Snapshot,
    "reply": Reply,
    "answer": Answer,
    "lost": Lost,
    "removed": Removed,
    "pong": Pong,
    "error": ErrorMessage,
}
"""The header's `t` and the body it announces, each way."""
