"""What the hub says to its own children (worker ranks, tokens process) and hears from them.

Same envelope as viewers use, on the daemon's inner socket. Knows no sockets.
"""

from typing import Literal

import msgspec

from engine_daemon.protocol import codec
from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.liveness import Alive as Alive
from engine_daemon.protocol.liveness import DumpStacks as DumpStacks
from engine_daemon.protocol.liveness import Stacks as Stacks
from engine_daemon.protocol.liveness import WorkPhase as WorkPhase
from engine_daemon.protocol.values import (
    ConditionSpec,
    Leading,
    ModelInfo,
    PromptSpec,
    Record,
    Sampler,
    StepFigures,
    Stops,
    TokenFigure,
    TokenIds,
)


class EngineOptions(Record, frozen=True, kw_only=True):
    """What the worker is to load and how; the `daemon start` options of the same names.

    `model` is a name, a directory or a `.gguf` file; `cache_dir` where converted models lie.
    `devices` empty = choose. `max_context` None = the model's. `rows_bytes`: how much host memory
    logits rows of past steps may take; `cache_bytes`: the budget of caches on the device;
    `snapshot_every`: steps between two snapshots of state that cannot be cropped. None = a
    default. `verify`: hash the weights files. `plain_engine`: nothing that makes the model faster
    than the library has it.
    """

    backend: str = "hf"
    model: str = "smollm2-135m"
    revision: str | None = None
    device: str = "auto"
    dtype: Literal["auto", "bf16", "fp16", "fp32"] = "auto"
    tp: int = 1
    max_context: int | None = None
    cache_dir: str = ""
    rows_bytes: int | None = None
    cache_bytes: int | None = None
    snapshot_every: int | None = None
    verify: bool = False
    plain_engine: bool = False

    @property
    def ranks(self) -> int:
        """Tensor-parallel ranks: `tp`, or one a device where several are named."""
        return max(self.tp, self.device.count(",") + 1)


# Any child → hub ------------------------------------------------------------------------------


class ChildReady(Message, frozen=True, kw_only=True):
    """First word of a child: who it is. A version other than the hub's is refused."""

    role: Literal["worker", "tokens"]
    version: str
    pid: int
    rank: int = 0


# Hub → worker ---------------------------------------------------------------------------------


class Load(Message, frozen=True, kw_only=True):
    """Find and load the model. Answered by `Progress`…, `Located`, then `EngineReady` or
    `LoadFailed`."""

    options: EngineOptions


class Pieces(Message, frozen=True, kw_only=True):
    """The table id → bytes is written; `path` is the file (`protocol.pieces`)."""

    path: str


class OpenSession(Message, frozen=True, kw_only=True):
    """Bring a session to `pending(step)`: read `prompt_ids` + `ids` (u32 columns).

    Answered by the event `Predicted`. `step` = number of `ids`. `restored` true after a restart:
    the `Predicted` then says what it cost. `salt` as in `SamplerSet`. `stands` false: a `Go`
    follows, the session does not stand at its first distribution. With `stops.score`,
    `PromptScored` comes before the `Predicted`.
    """

    session: str
    branch: int
    prompt_ids: bytes
    ids: bytes
    sampler: Sampler
    salt: int
    candidates: int
    cache_mode: Literal["kv", "none"]
    limit_tokens: int | None
    max_steps: int | None
    tokenize_ms: float
    restored: bool
    cause: bytes | None = None
    stands: bool = True
    stops: Stops | None = None


class Go(Message, frozen=True, kw_only=True):
    """Commit until pending at `step` (None: until something stops it); ends with `Stopped`.

    `read`: stand already when so many positions of a long sequence are read."""

    session: str
    step: int | None
    cause: bytes | None = None
    read: int | None = None


class Halt(Message, frozen=True, kw_only=True):
    """Stand at the next pending step, or after the chunk that is being read (time that is up: at
    a step only); `Stopped` with this reason follows if it was running. Measurements that are left
    are dropped."""

    session: str
    cause: bytes | None = None
    reason: Literal["pause", "timeout"] = "pause"


class ForceId(Message, frozen=True, kw_only=True):
    """Commit `id` at the pending step, forward, stand: `Stepped`, `Predicted`, `Stopped{goal}`.

    `then`: ids to commit after it in the same way (a u32 column).
    """

    session: str
    id: int
    cause: bytes | None = None
    then: bytes = b""


class Resample(Message, frozen=True, kw_only=True):
    """Evaluate the pending distribution under another sampler: one `Predicted`, no forward."""

    session: str
    sampler: Sampler
    salt: int
    cause: bytes | None = None


class SetConditions(Message, frozen=True, kw_only=True):
    """All conditions of a session and all ids it watches (u32), in place of those before."""

    session: str
    conditions: list[ConditionSpec]
    watch: bytes
    cause: bytes | None = None


class Move(Message, frozen=True, kw_only=True):
    """The session's sequence is the prompt and `ids` from here on, as `branch`.

    `look`: answered by `Predicted`, without a forward where the row is still held; else whatever
    comes next brings it. `ended`: why the sequence ended there, if it did; `earlier` as in
    `Stops`.
    """

    session: str
    branch: int
    ids: bytes
    sampler: Sampler
    salt: int
    look: bool
    ended: Literal["eos", "length", "context"] | None = None
    cause: bytes | None = None
    earlier: Leading | None = None


class MakeRow(Message, frozen=True, kw_only=True):
    """Make the logits row after the prompt and `ids` again: `Recomputed{branch, step}`."""

    session: str
    branch: int
    ids: bytes
    cause: bytes | None = None


class AskRow(Message, frozen=True, kw_only=True):
    """A read of the kept row after the prompt and `ids`. Answered by `RowAnswer`.

    `tokens`: the figures of these; `n`: so many draws counted, with salts from `salt` on;
    neither: the row under `sampler`.
    """

    ask: int
    session: str
    ids: bytes
    sampler: Sampler
    salt: int
    tokens: list[int] | None = None
    n: int | None = None


class Measure(Message, frozen=True, kw_only=True):
    """Forwards without cache over the first `lengths` tokens: one `NaiveMeasured` each."""

    session: str
    lengths: list[int]
    cause: bytes | None = None


class SumWeights(Message, frozen=True, kw_only=True):
    """Sum the parameters in memory. Answered by `WeightsSummed`."""


class Drop(Message, frozen=True, kw_only=True):
    """Forget the session and give its memory back."""

    session: str


class Seen(Message, frozen=True, kw_only=True):
    """Everything before `next` (count of this worker's events of the session) is in the log."""

    session: str
    next: int


# Worker → hub ---------------------------------------------------------------------------------


class Progress(Message, frozen=True, kw_only=True):
    """A stage of loading (`import`, `download`, `convert`, `load`, `warm up`), in bytes."""

    stage: str
    done: int = 0
    total: int = 0


class Located(Message, frozen=True, kw_only=True):
    """The model lies in this directory: safetensors + tokenizer. Empty for a built-in one."""

    model_dir: str


class EngineReady(Message, frozen=True, kw_only=True):
    """The model is loaded; the fields of `EngineStarted`."""

    backend: str
    synthetic: bool
    weights_id: str
    eos_ids: list[int]
    model: ModelInfo
    notes: list[str] = msgspec.field(default_factory=list)


class LoadFailed(Message, frozen=True, kw_only=True):
    """The model cannot be had or loaded; the worker leaves after this."""

    code: str
    message: str
    hint: str = ""


class WeightsSummed(Message, frozen=True, kw_only=True):
    """The parameters in memory now; `checksum` None: this backend has none."""

    checksum: str | None
    ms: float


class EventOut(Message, frozen=True, kw_only=True):
    """One packed event of a session, in order."""

    session: str
    event: bytes


class RowAnswer(Message, frozen=True, kw_only=True):
    """To `AskRow`: `code` is `gone` or `bad_arg` when there is none."""

    ask: int
    code: str = ""
    message: str = ""
    tokens: list[TokenFigure] | None = None
    figures: StepFigures | None = None


# Hub ↔ tokens ---------------------------------------------------------------------------------


class LoadTokenizer(Message, frozen=True, kw_only=True):
    """Read the tokenizer in `model_dir` (empty: the built-in one of the scripted engine) and write
    the table id → bytes to `pieces_path`. Answered by `TokenizerReady` or `LoadFailed`."""

    model_dir: str
    pieces_path: str


class TokenizerReady(Message, frozen=True, kw_only=True):
    """`tokenizer_id` = SHA-256 of tokenizer.json; `context_length` from the model's config."""

    tokenizer_id: str
    vocabulary: int
    context_length: int | None = None


class Encode(Message, frozen=True, kw_only=True):
    """Text → ids. Answered by `Encoded` with the same `ask`."""

    ask: int
    prompt: PromptSpec


class Encoded(Message, frozen=True, kw_only=True):
    """`prompt` is a packed `PromptSet` (branch 0, seed 0), or `code` says why there is none."""

    ask: int
    prompt: bytes | None = None
    code: str = ""
    message: str = ""
    hint: str = ""


class Resolve(Message, frozen=True, kw_only=True):
    """Conditions and watched texts → token ids. Answered by `Resolved` with the same `ask`."""

    ask: int
    sources: list[str]
    watch: list[bytes] = msgspec.field(default_factory=list)


class Resolved(Message, frozen=True, kw_only=True):
    """One list of literals a source, and the watched tokens; or `code` says what is wrong."""

    ask: int
    conditions: list[list[TokenIds]] = msgspec.field(default_factory=list)
    watch: list[TokenIds] = msgspec.field(default_factory=list)
    code: str = ""
    message: str = ""
    hint: str = ""


TO_CHILD: dict[str, type[Message]] = {
    "load": Load,
    "pieces": Pieces,
    "open_session": OpenSession,
    "go": Go,
    "halt": Halt,
    "force": ForceId,
    "resample": Resample,
    "set_conditions": SetConditions,
    "drop": Drop,
    "move": Move,
    "make_row": MakeRow,
    "ask_row": AskRow,
    "seen": Seen,
    "dump_stacks": DumpStacks,
    "measure": Measure,
    "sum_weights": SumWeights,
    "load_tokenizer": LoadTokenizer,
    "encode": Encode,
    "resolve": Resolve,
}
FROM_CHILD: dict[str, type[Message]] = {
    "child_ready": ChildReady,
    "progress": Progress,
    "located": Located,
    "engine_ready": EngineReady,
    "load_failed": LoadFailed,
    "event": EventOut,
    "row_answer": RowAnswer,
    "alive": Alive,
    "stacks": Stacks,
    "tokenizer_ready": TokenizerReady,
    "encoded": Encoded,
    "resolved": Resolved,
    "weights_summed": WeightsSummed,
}
"""The header's `t` and the body it announces, each way on the inner socket."""
codec.name(TO_CHILD | FROM_CHILD)
