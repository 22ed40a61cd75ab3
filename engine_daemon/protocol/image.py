"""A session folded: what a late joiner is given instead of every event before.

The fields are those of `recording.columns`, packed; whoever has the log needs none of this.
"""

import msgspec

from engine_daemon.protocol import events as ev
from engine_daemon.protocol.values import Record, Sampler


class RowsImage(Record, frozen=True, kw_only=True):
    """One row a step: a packed little-endian column by name, then the pieces, one after the other
    (`piece_ends` u32)."""

    columns: dict[str, bytes]
    piece_ends: bytes
    pieces: bytes


class EndImage(Record, frozen=True, kw_only=True):
    """What stands at the end of a branch."""

    pending: ev.Predicted | None = None
    seq_pending: int | None = None
    last_stop: ev.StepStop | None = None
    stop: ev.Stopped | None = None
    sampler: Sampler = Sampler()
    salt: int = 0


class BranchImage(Record, frozen=True, kw_only=True):
    """A branch: where it left its parent, its rows that are not on the path, its end."""

    id: int
    parent: int | None
    step: int
    rest: RowsImage
    end: EndImage


class TreeImage(Record, frozen=True, kw_only=True):
    """The branches, and the rows of the path that `branch` ends. `stood`: how it stood before the
    command in force."""

    branch: int
    path: RowsImage
    end: EndImage
    stood: ev.Stopped | None
    last_salt: int
    branches: list[BranchImage]


class KnownImage(Record, frozen=True, kw_only=True):
    """The last-known values."""

    opened: ev.Opened | None = None
    title: str = ""
    engine: ev.EngineStarted | None = None
    lost: ev.EngineLost | None = None
    limits: ev.SessionSet | None = None
    prompt: ev.PromptSet | None = None
    rejected: ev.PromptRejected | None = None
    goal: int | None = None
    closed: bool = False
    strays: int = 0
    complete: bool = True
    conditions: list[ev.ConditionAdded] = msgspec.field(default_factory=list)
    disabled: dict[int, str] = msgspec.field(default_factory=dict)
    next_condition: int = 1
    refused: ev.ConditionRejected | None = None
    watch: ev.WatchSet | None = None
    fired: list[tuple[int, int]] = msgspec.field(default_factory=list)
    notes: list[ev.Noted] = msgspec.field(default_factory=list)
    acts: list[ev.Commanded | ev.Noted] = msgspec.field(default_factory=list)
    running: bool = False
    predicted_once: bool = False
    scored: ev.PromptScored | None = None
    naive: list[tuple[int, float]] = msgspec.field(default_factory=list)
    measuring: int = 0
    read: ev.Prefilled | None = None
    failed: dict[int, str] = msgspec.field(default_factory=dict)
    fired_on: list[int] = msgspec.field(default_factory=list)
    seq_engine: int = 0


class Image(Record, frozen=True, kw_only=True):
    """Everything before event `next`."""

    next: int
    known: KnownImage
    tree: TreeImage
