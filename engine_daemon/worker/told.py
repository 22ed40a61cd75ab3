"""What a decode loop yields, told as events of the session's log.

Knows the shape of events; nothing of when they are sent.
"""

import math
import time
from typing import Literal, TypedDict

from engine_daemon.protocol.events import (
    CacheReleased,
    ConditionDisabled,
    NaiveMeasured,
    Predicted,
    Prefilled,
    PromptScored,
    Recomputed,
    Stepped,
    StepStop,
    Stopped,
)
from engine_daemon.protocol.packing import pack_floats, pack_ints
from engine_daemon.protocol.values import Restored, StopReason
from engine_daemon.worker.breakpoints import Disabled, Fired
from engine_daemon.worker.decode import DecodeSession
from engine_daemon.worker.outcomes import Append, Prediction
from engine_daemon.worker.prefill import Chunk, PromptScores


class _Stamp(TypedDict):
    t_ns: int
    wall_ns: int
    branch: int
    step: int
    cause: bytes | None


def predicted(branch: int, it: Prediction, cause: bytes | None) -> Predicted:
    """Forward done, nothing picked."""
    report = it.look.report
    return Predicted(
        **_stamp(branch, it.step, cause),
        phase=it.phase,
        position=it.position,
        processed=it.forward.processed,
        candidates=it.look.candidates,
        ties_cut=report.ties_cut,
        entropy_bits=report.entropy_bits,
        logsumexp=report.logsumexp,
        margin=report.margin,
        tail_prob=report.tail_prob,
        forward_ms=it.forward.ms,
        probe_ms=it.look.probe_ms,
        tokenize_ms=it.tokenize_ms,
        waited_ms=it.waited_ms,
        ranks_ms=it.forward.ranks_ms,
        after_pause=it.after_pause,
        cache=it.cache,
        work=it.work,
        restored=it.restored,
        watched=it.look.watched,
    )


def prefilled(branch: int, it: Chunk, cause: bytes | None) -> Prefilled:
    """A chunk read, more to follow."""
    return Prefilled(
        **_stamp(branch, it.step, cause),
        done=it.done,
        total=it.total,
        forward_ms=it.ms,
        waited_ms=it.waited_ms,
    )


def scored(session: DecodeSession, it: PromptScores, cause: bytes | None) -> PromptScored:
    """How likely the prompt was."""
    return PromptScored(
        **_stamp(session.branch, session.step, cause),
        logprobs=pack_floats("f", [math.nan if x is None else x for x in it.logprobs]),
        ranks=pack_ints("I", [x or 0 for x in it.ranks]),
    )


def naive(
    session: DecodeSession, length: int, ms: float, left: int, cause: bytes | None
) -> NaiveMeasured:
    """A forward without cache was measured."""
    stamp = _stamp(session.branch, session.step, cause)
    return NaiveMeasured(**stamp, length=length, ms=ms, left=left)


def stepped(branch: int, it: Append, stop: StepStop | None, cause: bytes | None) -> Stepped:
    """A token appended. `stop`: the step's own, or what the driver saw before telling it."""
    choice = it.choice
    return Stepped(
        **_stamp(branch, it.step, cause),
        id=choice.id,
        piece=it.piece,
        special=it.special,
        logit=choice.logit,
        final_logprob=choice.final_logprob,
        rank=choice.rank,
        how=choice.how,
        draw=choice.draw,
        before=choice.before,
        pick_ms=it.pick_ms,
        append_ms=it.append_ms,
        total_ms=it.total_ms,
        stop=stop,
    )


def stopped(
    session: DecodeSession,
    reason: StopReason,
    cause: bytes | None,
    *,
    message: str = "",
    need_bytes: int | None = None,
    have_bytes: int | None = None,
    fired: Fired | None = None,
) -> Stopped:
    """The session stands where it is now. `fired`: the condition that made it."""
    return Stopped(
        **_stamp(session.branch, session.step, cause),
        reason=reason,
        pending=session.pending is not None,
        message=message,
        need_bytes=need_bytes,
        have_bytes=have_bytes,
        condition=None if fired is None else fired.number,
        source="" if fired is None else fired.source,
        values={} if fired is None else fired.values,
    )


def disabled(session: DecodeSession, it: Disabled, cause: bytes | None) -> ConditionDisabled:
    """A condition was given up at this step."""
    return ConditionDisabled(
        **_stamp(session.branch, session.step, cause), number=it.number, message=it.message
    )


def recomputed(branch: int, step: int, restored: Restored, cause: bytes | None) -> Recomputed:
    """The row of a recorded step is there again."""
    return Recomputed(**_stamp(branch, step, cause), restored=restored)


def released(
    session: DecodeSession, size: int, why: Literal["parked", "snapshots", "cache"]
) -> CacheReleased:
    """Memory of this session went to somebody who needed it."""
    return CacheReleased(**_stamp(session.branch, session.step, None), bytes=size, why=why)


def _stamp(branch: int, step: int, cause: bytes | None) -> _Stamp:
    return {
        "t_ns": time.monotonic_ns(),
        "wall_ns": time.time_ns(),
        "branch": branch,
        "step": step,
        "cause": cause,
    }
