"""Samples of what branches, kept rows and the budget of caches brought (`samples` merges them)."""

from typing import Final

import msgspec

from engine_daemon.protocol import commands as c
from engine_daemon.protocol import events as e
from engine_daemon.protocol import values as v
from engine_daemon.protocol import worker as w
from engine_daemon.protocol.packing import pack_floats, pack_ints
from engine_daemon.protocol.reads import AskPreview, AskReroll, AskToken, AskWhatIf

_SESSION: Final = "7ZK3M9QP"
_CMD: Final = bytes(range(16))
_SAMPLER: Final = v.Sampler(greedy=False, temperature=0.5, seed=7)
_TOKEN: Final = v.TokenFigure(
    id=700,
    piece=b" Ku",
    special=True,
    logit=9.5,
    logprob=-0.5,
    final_logprob=-0.25,
    rank=1,
    count=12,
)
_FIGURES: Final = v.StepFigures(
    candidates=v.Candidates(
        ids=pack_ints("I", [700]),
        logit=pack_floats("f", [9.5]),
        final_logprob=pack_floats("f", [0.0]),
        dropped_by=bytes([v.DroppedBy.KEPT]),
        special=bytes([0]),
        piece_len=pack_ints("H", [3]),
        pieces=b" Ku",
    ),
    ties_cut=True,
    entropy_bits=1.5,
    logsumexp=10.0,
    margin=0.25,
    tail_prob=0.125,
    picked=_TOKEN,
    draw=0.75,
)
_LED: Final = v.Leading(id=700, margin=0.03125)
_IDS: Final = pack_ints("I", [1, 900])


BRANCHES: Final[dict[str, msgspec.Struct]] = {
    "CacheReport-2": v.CacheReport(
        mode="kv", parked_bytes=4096, snapshot_bytes=1024, rows_bytes=98_304
    ),
    "TokenFigure": _TOKEN,
    "StepFigures": _FIGURES,
    "Branched": e.Branched(t_ns=5, wall_ns=6, branch=2, step=5, cause=_CMD, parent=1),
    "Switched": e.Switched(t_ns=5, wall_ns=6, branch=1, step=9, cause=_CMD),
    "Recomputed": e.Recomputed(
        t_ns=5,
        wall_ns=6,
        branch=1,
        step=4,
        cause=_CMD,
        restored=v.Restored(method="crop", replayed=1, ms=12.5),
    ),
    "CacheReleased": e.CacheReleased(
        t_ns=5, wall_ns=6, branch=1, step=4, cause=_CMD, bytes=4096, why="parked"
    ),
    "Force-2": c.Force(id=700, step=4, branch=1),
    "ForceText": c.ForceText(ids=[700, 701], step=4, branch=1),
    "SetSampler-2": c.SetSampler(sampler=_SAMPLER, step=4, branch=1),
    "Resample-cmd": c.Resample(step=4, branch=1),
    "Switch": c.Switch(branch=3),
    "Recompute": c.Recompute(step=4, branch=1),
    "AskToken": AskToken(ids=[1, 700], step=4, branch=1),
    "AskWhatIf": AskWhatIf(sampler=_SAMPLER, step=4, branch=1),
    "AskPreview": AskPreview(sampler=_SAMPLER),
    "AskReroll": AskReroll(n=1000, step=4, branch=1),
    "Answer-2": c.Answer(tokens=[_TOKEN], figures=_FIGURES),
    "EngineOptions-2": w.EngineOptions(rows_bytes=1 << 20, cache_bytes=1 << 30, snapshot_every=16),
    "ForceId-2": w.ForceId(session=_SESSION, id=700, then=_IDS),
    "Move": w.Move(
        session=_SESSION,
        branch=1,
        ids=_IDS,
        sampler=_SAMPLER,
        salt=3,
        look=True,
        ended="eos",
        cause=_CMD,
    ),
    "Leading": _LED,
    "Restored-2": v.Restored(method="prefill", replayed=9, ms=12.5, diverged=_LED),
    "Stops-earlier": v.Stops(earlier=_LED),
    "Stops-ended": v.Stops(ended="context"),
    "Move-2": w.Move(
        session=_SESSION,
        branch=1,
        ids=_IDS,
        sampler=_SAMPLER,
        salt=3,
        look=False,
        earlier=_LED,
    ),
    "MakeRow": w.MakeRow(session=_SESSION, branch=1, ids=_IDS, cause=_CMD),
    "AskRow": w.AskRow(
        ask=3, session=_SESSION, ids=_IDS, sampler=_SAMPLER, salt=3, tokens=[700], n=100
    ),
    "RowAnswer": w.RowAnswer(
        ask=3, code="gone", message="evicted", tokens=[_TOKEN], figures=_FIGURES
    ),
}
