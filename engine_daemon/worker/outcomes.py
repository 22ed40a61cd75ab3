"""What a decode loop comes to: distributions and tokens, and how they are named.

Values only. Knows no cache, no sessions and no sockets.
"""

import hashlib
import struct
from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from engine_daemon.protocol.events import Phase
from engine_daemon.protocol.packing import pack_floats, pack_ints
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.values import CacheReport, Candidates, Leading, Restored, Watched, Work
from engine_daemon.worker.backends.base import Choice, Evaluation, Forward, Report

OwnStop = Literal["eos", "length", "context"]
"""What ends a sequence by itself."""


def draw(seed: int, salt: int, step: int) -> float:
    """The uniform number of a step: a function of these three and of nothing that went before."""
    digest = hashlib.sha256(struct.pack("<QQQ", seed, salt, step)).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)


class Look(msgspec.Struct, frozen=True):
    """A distribution under one sampler, as it is told. Naming candidates is a cost of looking."""

    evaluation: Evaluation
    report: Report
    candidates: Candidates
    evaluate_ms: float
    probe_ms: float
    watched: Watched | None = None


class Prediction(msgspec.Struct, frozen=True):
    """A distribution that exists and from which nothing is picked yet."""

    step: int
    phase: Phase
    position: int
    forward: Forward
    look: Look
    tokenize_ms: float
    waited_ms: float
    after_pause: bool
    cache: CacheReport
    work: Work
    restored: Restored | None


class Append(msgspec.Struct, frozen=True):
    """A token that has become part of the sequence. `stop`: what this step ends by itself."""

    step: int
    choice: Choice
    piece: bytes
    special: bool
    pick_ms: float
    append_ms: float
    total_ms: float
    stop: OwnStop | None


def watched_in(evaluation: Evaluation, ids: Iterable[int], table: PieceTable) -> Watched | None:
    """What these tokens have in this distribution; None where nobody watches any."""
    rows = [evaluation.forced(token_id) for token_id in ids]
    if not rows:
        return None
    pieces = [table.piece(row.id) for row in rows]
    return Watched(
        ids=pack_ints("I", [row.id for row in rows]),
        logit=pack_floats("f", [row.logit for row in rows]),
        rank=pack_ints("I", [row.rank for row in rows]),
        piece_len=pack_ints("H", map(len, pieces)),
        pieces=b"".join(pieces),
    )


def named(report: Report, table: PieceTable) -> Candidates:
    """The report's candidates with the bytes that name them."""
    pieces, special = table.named(report.ids)
    return Candidates(
        ids=pack_ints("I", report.ids),
        logit=pack_floats("f", report.logits),
        final_logprob=pack_floats("f", report.final_logprobs),
        dropped_by=bytes(report.dropped_by),
        special=bytes(special),
        piece_len=pack_ints("H", map(len, pieces)),
        pieces=b"".join(pieces),
    )


def compared(restored: Restored | None, report: Report, earlier: Leading | None) -> Restored | None:
    """How a distribution came back, with who led in it before where another one leads now."""
    if restored is None or earlier is None or earlier.id in report.ids[:1]:
        return restored
    return replace(restored, diverged=earlier)
