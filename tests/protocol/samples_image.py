"""Samples of a folded session, made of the events' own samples: see `samples`."""

from typing import Any, Final

import msgspec

from engine_daemon.protocol import image as i
from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.values import Sampler
from tests.protocol.condition_samples import CONDITION_SAMPLES
from tests.protocol.samples import SAMPLES

_ALL: Final[dict[str, Any]] = {**SAMPLES, **CONDITION_SAMPLES}
_ROWS: Final = i.RowsImage(
    columns={"ids": pack_ints("I", [7, 9])}, piece_ends=pack_ints("I", [1, 3]), pieces=b"abc"
)
_END: Final = i.EndImage(
    pending=_ALL["Predicted"],
    seq_pending=12,
    last_stop="eos",
    stop=_ALL["Stopped"],
    sampler=Sampler(greedy=False, seed=3),
    salt=2,
)
_BRANCH: Final = i.BranchImage(id=1, parent=0, step=4, rest=_ROWS, end=_END)
_TREE: Final = i.TreeImage(
    branch=1, path=_ROWS, end=_END, stood=_ALL["Stopped"], last_salt=3, branches=[_BRANCH]
)
_KNOWN: Final = i.KnownImage(
    title="first run",
    opened=_ALL["Opened"],
    engine=_ALL["EngineStarted"],
    lost=_ALL["EngineLost"],
    limits=_ALL["SessionSet"],
    prompt=_ALL["PromptSet"],
    rejected=_ALL["PromptRejected"],
    goal=3,
    closed=True,
    strays=1,
    complete=False,
    conditions=[_ALL["ConditionAdded"]],
    disabled={3: "too slow"},
    next_condition=4,
    refused=_ALL["ConditionRejected"],
    watch=_ALL["WatchSet"],
    fired=[(3, 1)],
    notes=[_ALL["Noted"]],
    acts=[_ALL["Commanded"]],
    running=True,
    predicted_once=True,
    scored=_ALL["PromptScored"],
    naive=[(8, 1.5)],
    measuring=2,
    read=_ALL["Prefilled"],
)
_FAILED: Final = i.KnownImage(failed={7: "no memory"})

IMAGE_SAMPLES: Final[dict[str, msgspec.Struct]] = {
    type(sample).__name__: sample
    for sample in (_ROWS, _END, _BRANCH, _TREE, _KNOWN, i.Image(next=40, known=_KNOWN, tree=_TREE))
}
IMAGE_SAMPLES["KnownImage-2"] = _FAILED
IMAGE_SAMPLES["KnownImage-3"] = i.KnownImage(fired=[(3, 1)], fired_on=[2], seq_engine=5)
