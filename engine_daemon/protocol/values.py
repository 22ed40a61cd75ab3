"""The plain values inside events and messages: sampler, model, candidates, cache.

Knows how they are packed, nothing of who sends them.
"""

from enum import IntEnum
from typing import Literal

import msgspec

from engine_daemon.protocol.packing import split, unpack_floats, unpack_ints

StopReason = Literal[
    "goal",
    "pause",
    "condition",
    "timeout",
    "eos",
    "length",
    "context",
    "no_memory",
    "error",
    "engine_lost",
    "disk_full",
]
ConditionValue = bool | int | float | str
"""What an atom of a condition had where it stopped."""


class DroppedBy(IntEnum):
    """Which stage of the sampler took a candidate out (`Candidates.dropped_by`)."""

    KEPT = 0
    GREEDY = 1
    TOP_K = 2
    TOP_P = 3
    MIN_P = 4
    MASK = 5

    @property
    def word(self) -> str | None:
        """The word used in JSON and on screen; None for a candidate that was kept."""
        return None if self is DroppedBy.KEPT else self.name.lower()


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the plain values inside messages."""


class ChatMessage(Record, frozen=True, kw_only=True):
    """One message of a conversation; `content` is UTF-8."""

    role: str
    content: bytes


class PromptSpec(Record, frozen=True, kw_only=True):
    """A prompt as a person gave it.

    `text` is byte-exact UTF-8. `template`: apply the model's chat template with `system`.
    `specials` false: text that looks like a special token stays text.
    `ids` (u32) is a prompt that is tokenised already, `messages` a whole conversation for the
    template; with either `text` is empty.
    """

    text: bytes
    template: bool = False
    system: bytes | None = None
    specials: bool = True
    ids: bytes | None = None
    messages: list[ChatMessage] | None = None


class Sampler(Record, frozen=True, kw_only=True):
    """How the next id is picked. The neutral value of each field changes nothing.

    `greedy` takes the lowest id among the equal maxima after penalties; then the five sampling
    fields below do not apply. `seed` is 0 … 2^64-1.
    """

    greedy: bool = True
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    @property
    def is_greedy(self) -> bool:
        """Nothing is drawn: a temperature of 0 is greedy, too."""
        return self.greedy or self.temperature <= 0.0


class WeightsFile(Record, frozen=True, kw_only=True):
    """One file of the checkpoint; `sha256` only when it was asked for."""

    file: str
    bytes: int
    sha256: str | None = None


class ModelInfo(Record, frozen=True, kw_only=True):
    """The model as loaded; the fields of `ready.model` in the JSON output.

    `layer_kinds` counts layers by kind (`full_attention`, `sliding_attention`,
    `linear_attention` …). `context_length` is in positions, `weights_bytes` are the bytes of the
    parameters in memory, each counted once. `weights_checksum` is of these bytes as they lay there
    right after loading (None: the backend has none to sum). `engine_path`: `plain`, or what makes
    it faster, joined by `+` (`packed`, `joined`, `attention`).
    """

    name: str
    architecture: str
    parameters: int
    dtype: str
    device: str
    ranks: int
    layers: int
    layer_kinds: dict[str, int]
    vocabulary: int
    context_length: int
    weights_bytes: int
    weights_files: list[WeightsFile]
    load_s: float
    weights_checksum: str | None = None
    engine_path: str = "plain"


class Candidates(Record, frozen=True, kw_only=True):
    """The first K tokens by logit (descending, then id ascending), packed a column a field.

    `ids` u32; `logit` f32, raw (-inf = masked); `final_logprob` f32, what the draw used (-inf =
    dropped); `dropped_by` u8 (`DroppedBy`); `special` u8 (1 = contributes no text); `piece_len`
    u16 and `pieces`, the bytes that name each token.
    """

    ids: bytes
    logit: bytes
    final_logprob: bytes
    dropped_by: bytes
    special: bytes
    piece_len: bytes
    pieces: bytes

    def rows(self) -> "list[CandidateRow]":
        """The columns as rows; ValueError when they do not fit each other."""
        return [
            CandidateRow(i, lo, fi, DroppedBy(dr), bool(sp), piece)
            for i, lo, fi, dr, sp, piece in zip(
                unpack_ints("I", self.ids),
                unpack_floats("f", self.logit),
                unpack_floats("f", self.final_logprob),
                self.dropped_by,
                self.special,
                split(self.pieces, unpack_ints("H", self.piece_len)),
                strict=True,
            )
        ]


class CandidateRow(msgspec.Struct, frozen=True):
    """One unpacked candidate; `piece` names the token, it contributes it unless `special`."""

    id: int
    logit: float
    final_logprob: float
    dropped_by: DroppedBy
    special: bool
    piece: bytes


class TokenIds(Record, frozen=True, kw_only=True):
    """A text and every token whose bytes it is; `ids` u32, ascending."""

    text: bytes
    ids: bytes


class ConditionSpec(Record, frozen=True, kw_only=True):
    """A stop condition: its number in the session, its text, and the tokens it speaks of."""

    number: int
    source: str
    literals: list[TokenIds]


class Wanted(Record, frozen=True, kw_only=True):
    """What an opening command wants besides decoding; the fields of `Open` of the same names."""

    until: list[str] = msgspec.field(default_factory=list)
    watch: list[bytes] = msgspec.field(default_factory=list)
    timeout_s: float | None = None


class Stops(Record, frozen=True, kw_only=True):
    """What the worker does for a session besides decoding. `conditions` are asked at every step,
    `watch` are u32 ids it tells of, `total_ms` (f32) the times of the steps already done; `score`:
    it tells how likely the prompt is; `earlier`: who led in the distribution at hand when it was
    made before; `ended`: why the sequence ended where it is opened, if it did: nothing is
    predicted there before that is asked for."""

    conditions: list[ConditionSpec] = msgspec.field(default_factory=list)
    watch: bytes = b""
    total_ms: bytes = b""
    score: bool = False
    earlier: "Leading | None" = None
    ended: Literal["eos", "length", "context"] | None = None


class Watched(Record, frozen=True, kw_only=True):
    """Tokens that somebody watches, with what they have in this distribution; packed columns.

    `ids` u32, `logit` f32 raw (-inf = masked), `rank` u32 (1 + strictly greater raw logits),
    `piece_len` u16 and `pieces`.
    """

    ids: bytes
    logit: bytes
    rank: bytes
    piece_len: bytes
    pieces: bytes

    def rows(self) -> "list[WatchedRow]":
        """The columns as rows; ValueError when they do not fit each other."""
        return [
            WatchedRow(i, logit, rank, piece)
            for i, logit, rank, piece in zip(
                unpack_ints("I", self.ids),
                unpack_floats("f", self.logit),
                unpack_ints("I", self.rank),
                split(self.pieces, unpack_ints("H", self.piece_len)),
                strict=True,
            )
        ]


class WatchedRow(msgspec.Struct, frozen=True):
    """One unpacked watched token."""

    id: int
    logit: float
    rank: int
    piece: bytes


class CacheKind(Record, frozen=True, kw_only=True):
    """What the layers of one kind hold. `growth`: `growing` with every token, `bounded` by a
    window, or `fixed`."""

    kind: str
    layers: int
    bytes: int
    growth: Literal["growing", "bounded", "fixed"]


class CacheReport(Record, frozen=True, kw_only=True):
    """What the session holds on the devices after the forward, from the real tensors.

    `tokens` positions held; `growing_bytes` what they occupy in the key/value buffers;
    `fixed_bytes` recurrent and convolution state; `allocated_bytes` all buffers;
    `capacity_tokens` positions that fit in them; `limit_tokens` the session's limit. Beside them
    `parked_bytes` of branches that were left, `snapshot_bytes` to go back to, and `rows_bytes` of
    logits of past steps (host memory, all sessions). `kinds` the same bytes by kind of layer.
    `device_used_bytes` of `device_total_bytes` are taken on the device by this process, weights
    included. None where the backend cannot tell.
    """

    mode: Literal["kv", "none"]
    tokens: int | None = None
    growing_bytes: int | None = None
    fixed_bytes: int | None = None
    allocated_bytes: int | None = None
    capacity_tokens: int | None = None
    limit_tokens: int | None = None
    parked_bytes: int | None = None
    snapshot_bytes: int | None = None
    rows_bytes: int | None = None
    kinds: list[CacheKind] | None = None
    device_used_bytes: int | None = None
    device_total_bytes: int | None = None


class Leading(Record, frozen=True, kw_only=True):
    """The first candidate of a distribution, and by how much probability it leads (`margin`)."""

    id: int
    margin: float


class Restored(Record, frozen=True, kw_only=True):
    """How a distribution came back: `method`, positions re-read and milliseconds.

    `prefill`: everything was read again; `snapshot`, `crop`: the cache was taken back; `row`: the
    logits were still held and nothing was read. `diverged`: who led when this distribution was made
    before, where another candidate leads now; None where the same one does, or it never was made.
    """

    method: str
    replayed: int
    ms: float
    diverged: Leading | None = None


class Work(Record, frozen=True, kw_only=True):
    """Derived (a formula, not a measurement): floating-point operations and bytes moved."""

    flops: int
    bytes_moved: int


class TokenFigure(Record, frozen=True, kw_only=True):
    """One token in a kept row. `logprob` raw; `final_logprob` under the sampler in force.

    `count` only where draws were counted.
    """

    id: int
    piece: bytes
    special: bool
    logit: float
    logprob: float
    final_logprob: float
    rank: int
    count: int | None = None


class StepFigures(Record, frozen=True, kw_only=True):
    """A kept row under some sampler, as `Predicted` tells it; `picked` is what it would append
    and `draw` the number it used (None when greedy)."""

    candidates: Candidates
    ties_cut: bool
    entropy_bits: float
    logsumexp: float
    margin: float
    tail_prob: float
    picked: TokenFigure
    draw: float | None = None


class PromptToken(msgspec.Struct, frozen=True):
    """One token of the prompt; it contributes `piece` to the text unless `added`."""

    id: int
    piece: bytes
    special: bool
    added: bool
    start: int | None
    end: int | None
