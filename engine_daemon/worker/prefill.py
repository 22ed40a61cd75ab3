"""Reading a long sequence in chunks: what the chunks come to, and how likely the prompt was.

Plain sums, torch-free. Knows no cache, no turns and no events.
"""

from dataclasses import dataclass, field

import msgspec

from engine_daemon.protocol.commands import CHUNK
from engine_daemon.worker.backends.base import Forward

__all__ = ["CHUNK", "Chunk", "PromptScores", "Reading"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk is read and more follow: `done` of `total` positions."""

    step: int
    done: int
    total: int
    ms: float
    waited_ms: float


@dataclass(slots=True)
class Reading:
    """The chunks read so far of a sequence that is being read."""

    processed: int = 0
    ms: float = 0.0
    waited_ms: float = 0.0
    ranks_ms: list[float] | None = None

    def add(self, forward: Forward, waited_ms: float) -> None:
        """One more."""
        self.processed += forward.processed
        self.ms += forward.ms
        self.waited_ms += waited_ms
        if forward.ranks_ms is not None:
            before = self.ranks_ms or [0.0] * len(forward.ranks_ms)
            self.ranks_ms = [a + b for a, b in zip(before, forward.ranks_ms, strict=True)]

    def whole(self, last: Forward) -> Forward:
        """The forward over everything: the last chunk's distribution with the sums of all."""
        self.add(last, 0.0)
        return msgspec.structs.replace(
            last, ms=self.ms, processed=self.processed, ranks_ms=self.ranks_ms
        )


@dataclass(slots=True)
class PromptScores:
    """Log-probability and rank of each prompt token; None for the first: nothing is before it."""

    logprobs: list[float | None] = field(default_factory=lambda: [None])
    ranks: list[int | None] = field(default_factory=lambda: [None])

    def add(self, logprobs: list[float], ranks: list[int]) -> None:
        """The next tokens'."""
        self.logprobs += logprobs
        self.ranks += ranks
