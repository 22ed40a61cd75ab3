"""What an engine backend is: three small protocols and the values they exchange.

Torch-free: the decode loop works with any backend. What a backend does inside is its own matter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import msgspec

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.events import How
from engine_daemon.protocol.pieces import ProbeText
from engine_daemon.protocol.values import CacheReport, ModelInfo, Sampler, Work
from engine_daemon.protocol.worker import EngineOptions

ProgressFn = Callable[[str, int, int], None]
"""`(stage, done, total)`, in bytes; total 0 = not known."""


class NoMemoryError(InspectError):
    """A forward that does not fit: code `no_memory`, with the bytes it needs and what is free."""

    def __init__(self, message: str, need_bytes: int | None, have_bytes: int | None) -> None:
        super().__init__(message, exit_code=Exit.MODEL, code="no_memory")
        self.need_bytes = need_bytes
        self.have_bytes = have_bytes


@dataclass(frozen=True, slots=True)
class Loaded:
    """What loading found. `notes`: what to know about how it was loaded, a sentence each."""

    model: ModelInfo
    weights_id: str
    eos_ids: list[int]
    notes: list[str] = field(default_factory=list)


class Report(msgspec.Struct, frozen=True):
    """The distribution as a step reports it: raw figures and the first K candidates.

    Lists run in CONTRACT's order (logit descending, then id ascending). `logits` raw, -inf =
    masked; `final_logprobs` what the draw uses, -inf = dropped; `dropped_by` values of
    `DroppedBy`. `entropy_bits`, `logsumexp` (natural), `margin`, `tail_prob` are raw.
    """

    ids: list[int]
    logits: list[float]
    final_logprobs: list[float]
    dropped_by: list[int]
    ties_cut: bool
    entropy_bits: float
    logsumexp: float
    margin: float
    tail_prob: float


class Choice(msgspec.Struct, frozen=True):
    """A picked id with its own values: `logit` raw, `rank` 1 + strictly greater raw logits.
    `before`, of a draw: the final probability of all that come before it in the sampler's order."""

    id: int
    logit: float
    final_logprob: float
    rank: int
    how: How
    draw: float | None
    before: float | None = None


class Evaluation(Protocol):
    """One distribution under one sampler."""

    def report(self, k: int) -> Report:
        """Figures and the first `k` candidates (`k` up to the vocabulary)."""
        ...

    def pick(self, u: float) -> Choice:
        """Greedy: `u` is ignored. Sampled: the first token in the sampler's order whose cumulative
        final probability, summed in float64, exceeds `u`."""
        ...

    def forced(self, token_id: int) -> Choice:
        """This id, with the values it has here."""
        ...


class Distribution(Protocol):
    """The model's output at one position: a row of raw logits, kept as the model produced it."""

    def evaluate(self, sampler: Sampler, path: Sequence[int]) -> Evaluation:
        """Apply a sampler; `path` is every id before this position (for penalties)."""
        ...

    def kept(self) -> "tuple[Distribution, int] | None":
        """The same row in host memory, in the dtype the model produced, and its bytes; None where
        it cannot be kept."""
        ...


@dataclass(frozen=True, slots=True)
class Back:
    """Where a cache was brought to: `position` ids are held, all of them as asked.

    `method` is `crop`, `snapshot` or `prefill` (nothing could be kept); None when the cache had
    not to be touched.
    """

    position: int
    method: Literal["crop", "snapshot", "prefill"] | None


class SessionCache(Protocol):
    """What the backend holds for one session."""

    def report(self, limit_tokens: int | None, rows_bytes: int | None = None) -> CacheReport:
        """Bytes and positions, from the real tensors; the two given are passed on."""
        ...

    def go_back(self, ids: Sequence[int], *, park: bool = True) -> Back:
        """Hold the longest beginning of `ids` that can be had without a forward.

        With `park` what is held beyond it is put aside, and found again when it is asked for.
        """
        ...

    def free(self) -> None:
        """Give all of it back."""
        ...


class Forward(msgspec.Struct, frozen=True):
    """One forward: its distribution, device-synchronised milliseconds, positions read."""

    distribution: Distribution
    ms: float
    processed: int
    ranks_ms: list[float] | None = None


class Scored(msgspec.Struct, frozen=True):
    """A forward with the raw log-probability and rank of each token asked for."""

    forward: Forward
    logprobs: list[float]
    ranks: list[int]


class Backend(Protocol):
    """An engine. All calls come from one thread."""

    name: str
    synthetic: bool

    def load(self, options: EngineOptions, model_dir: str, progress: ProgressFn) -> Loaded:
        """Load the model that `locate` found. Raises InspectError (exit 3)."""
        ...

    def new_cache(self, mode: Literal["kv", "none"]) -> SessionCache:
        """An empty cache."""
        ...

    def forward(self, ids: Sequence[int], cache: SessionCache) -> Forward:
        """Read `ids` after what the cache holds; the distribution after the last of them.

        With mode `none` the cache keeps no tensors and re-reads everything it was given.
        Raises NoMemoryError, or InspectError (`engine`).
        """
        ...

    def work(self, processed: int, position: int) -> Work:
        """Derived FLOPs and bytes of a forward that read `processed` positions, ending at
        `position` tokens."""
        ...

    def close(self) -> None:
        """Free everything."""
        ...


@runtime_checkable
class ChecksTokenizer(Protocol):
    """A backend that has a tokenizer of its own to compare ours with; not every one does."""

    def check_probe(self, probe: Sequence[ProbeText]) -> None:
        """InspectError when its own ids for one of these texts differ. After `load`."""
        ...


@runtime_checkable
class ScoresPrompt(Protocol):
    """A backend that can tell how likely the tokens it reads were, in the pass that reads them."""

    def score(self, ids: Sequence[int], cache: SessionCache, targets: Sequence[int]) -> Scored:
        """As `Backend.forward`; `targets[i]` is the token that came after `ids[i]`, for the first
        of `ids` or all of them."""
        ...


@runtime_checkable
class HasWeights(Protocol):
    """A backend with parameters in memory."""

    def sum_weights(self, progress: ProgressFn) -> str:
        """A checksum of the bytes of all parameters as they lie in memory now."""
        ...
