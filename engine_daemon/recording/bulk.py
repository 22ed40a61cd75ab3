"""Many events at once into columns: what `Columns.apply` does, several times as fast.

Of a step that follows the one before, only the fields that make its row are decoded; every other
event takes the common way. Knows payloads and columns; no files.
"""

import math
from array import array
from collections.abc import Sequence
from typing import Final

import msgspec

from engine_daemon.protocol.codec import WireError
from engine_daemon.protocol.events import How, Phase, StepStop, UnknownEvent
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.rows import Flag, Rows

_TAG_BYTES: Final = 16
"""Of a packed event, in which its kind lies: the tag is the first field."""
_HOW: Final[dict[How, int]] = {"greedy": 0, "sampled": Flag.SAMPLED, "forced": Flag.FORCED}
_BAD: Final = (msgspec.MsgspecError, ValueError, TypeError, RecursionError, MemoryError)


class _Predicted(msgspec.Struct, tag="Predicted", tag_field="k", gc=False):
    """Of `events.Predicted`: what its row needs."""

    phase: Phase
    position: int
    processed: int
    entropy_bits: float
    logsumexp: float
    margin: float
    forward_ms: float
    probe_ms: float
    waited_ms: float = 0.0
    after_pause: bool = False
    restored: object | None = None
    branch: int = 0
    step: int = 0


class _Stepped(msgspec.Struct, tag="Stepped", tag_field="k", gc=False):
    """Of `events.Stepped`: what its row needs."""

    id: int
    piece: bytes
    special: bool
    logit: float
    final_logprob: float
    rank: int
    how: How
    pick_ms: float
    append_ms: float
    total_ms: float
    stop: StepStop | None = None
    branch: int = 0
    step: int = 0


_predicted: Final = msgspec.msgpack.Decoder(_Predicted).decode
_stepped: Final = msgspec.msgpack.Decoder(_Stepped).decode


def fold_run(columns: Columns, seq: int, payloads: Sequence[bytes]) -> bool:
    """Fold events `seq`, `seq` + 1, … in; lost ones before them, and what is no event of ours, are
    skipped and flagged. False when some are of a kind that this version does not know."""
    columns.skip(seq)
    at, known = 0, True
    while at < len(payloads):
        at += _fold_steps(columns, payloads, at, seq)
        if at == len(payloads):
            break
        try:
            event = columns.apply(seq + at, payloads[at])
            known = known and not isinstance(event, UnknownEvent)
        except WireError:
            columns.skip(seq + at + 1)
        at += 1
    return known


def _fold_steps(columns: Columns, payloads: Sequence[bytes], at: int, seq: int) -> int:
    """Fold the steps that follow each other from `at` on; gives how many events they were."""
    predicted, stepped = _steps(columns, payloads, at)
    if not predicted:
        return 0
    try:
        rows = _rows(predicted, stepped, seq + at)
    except OverflowError:  # numbers out of range, in broken recordings only: one by one then
        return 0
    columns.append_steps(rows, seq + at, stepped[-1].stop)
    return 2 * len(predicted)


def _steps(
    columns: Columns, payloads: Sequence[bytes], at: int
) -> tuple[list[_Predicted], list[_Stepped]]:
    """`Predicted` and `Stepped` in turn, of the branch stood on, from its next step on."""
    found: tuple[list[_Predicted], list[_Stepped]] = ([], [])
    branch, step = columns.branch, len(columns)
    for k in range(at, len(payloads) - 1, 2):
        first, second = payloads[k], payloads[k + 1]
        if b"Predicted" not in first[:_TAG_BYTES] or b"Stepped" not in second[:_TAG_BYTES]:
            break
        try:
            predicted, stepped = _predicted(first), _stepped(second)
        except _BAD:
            break
        if not predicted.step == stepped.step == step:
            break
        if not predicted.branch == stepped.branch == branch:
            break
        found[0].append(predicted)
        found[1].append(stepped)
        step += 1
    return found


def _rows(predicted: list[_Predicted], stepped: list[_Stepped], seq: int) -> Rows:
    """The rows of these steps, whose events are numbered from `seq` on."""
    rows, last = Rows(), seq + 2 * len(predicted)
    rows.ids = array("I", [s.id for s in stepped])
    rows.prob = _exp([s.logit - p.logsumexp for p, s in zip(predicted, stepped, strict=True)])
    rows.final_prob = _exp([s.final_logprob for s in stepped])
    rows.entropy = array("d", [p.entropy_bits for p in predicted])
    rows.margin = array("d", [p.margin for p in predicted])
    rows.rank = array("I", [s.rank for s in stepped])
    rows.forward_ms = array("f", [p.forward_ms for p in predicted])
    rows.probe_ms = array("f", [p.probe_ms for p in predicted])
    rows.pick_ms = array("f", [s.pick_ms for s in stepped])
    rows.append_ms = array("f", [s.append_ms for s in stepped])
    rows.total_ms = array("f", [s.total_ms for s in stepped])
    rows.waited_ms = array("f", [p.waited_ms for p in predicted])
    rows.position = array("I", [p.position for p in predicted])
    rows.processed = array("I", [p.processed for p in predicted])
    rows.flags = array("H", map(_flags, predicted, stepped))
    rows.seq_predicted = array("I", range(seq, last, 2))
    rows.seq_stepped = array("I", range(seq + 1, last, 2))
    rows.set_pieces([s.piece for s in stepped])
    return rows


def _exp(logprobs: list[float]) -> "array[float]":
    """As `rows.exp`, of many."""
    exp = math.exp
    return array("d", [exp(0.0 if x > 0.0 else x) for x in logprobs])


_SPECIAL, _EOS = int(Flag.SPECIAL), int(Flag.EOS)
_PAUSE, _PREFILL, _RESTORED = int(Flag.AFTER_PAUSE), int(Flag.PREFILL), int(Flag.RESTORED)


def _flags(predicted: _Predicted, stepped: _Stepped) -> int:
    flags = int(_HOW[stepped.how])
    if stepped.special:
        flags |= _SPECIAL
    if stepped.stop == "eos":
        flags |= _EOS
    if predicted.after_pause:
        flags |= _PAUSE
    if predicted.phase == "prefill":
        flags |= _PREFILL
    return flags if predicted.restored is None else flags | _RESTORED
