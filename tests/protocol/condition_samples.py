"""Samples of conditions, watch lists, time limits and ready-made prompts (see `samples`)."""

from typing import Final

import msgspec

from engine_daemon.protocol import commands as c
from engine_daemon.protocol import events as e
from engine_daemon.protocol import values as v
from engine_daemon.protocol import worker as w
from engine_daemon.protocol.packing import pack_floats, pack_ints
from engine_daemon.protocol.reads import AskCondition
from tests.protocol.samples import CMD, SAMPLES

TOKEN_IDS: Final = v.TokenIds(text=b" Ku", ids=pack_ints("I", [700, 701]))
CONDITION_SPEC: Final = v.ConditionSpec(
    number=3, source='token=" Ku" and ms>3x', literals=[TOKEN_IDS]
)
WATCHED: Final = v.Watched(
    ids=pack_ints("I", [700, 12]),
    logit=pack_floats("f", [8.25, float("-inf")]),
    rank=pack_ints("I", [2, 49_152]),
    piece_len=pack_ints("H", [3, 2]),
    pieces=b" Ku\xe2\x98",
)
WANTED: Final = v.Wanted(until=["entropy>3"], watch=[b" Ku"], timeout_s=2.5)
STOPS: Final = v.Stops(
    conditions=[CONDITION_SPEC],
    watch=pack_ints("I", [700]),
    total_ms=pack_floats("f", [13.5]),
)
CHAT_MESSAGE: Final = v.ChatMessage(role="user", content="Grüße".encode())


def _event(kind: type[e.Event], **fields: object) -> e.Event:
    return kind(
        t_ns=123_456_789,
        wall_ns=1_767_225_600_123_456_789,
        branch=1,
        step=9,
        cause=CMD,
        **fields,
    )


def _again(name: str, **fields: object) -> msgspec.Struct:
    """The first sample of a struct that grew, with these fields."""
    return msgspec.structs.replace(SAMPLES[name], **fields)


_NEW: list[msgspec.Struct] = [
    TOKEN_IDS,
    CONDITION_SPEC,
    WATCHED,
    WANTED,
    STOPS,
    CHAT_MESSAGE,
    _event(e.ConditionAdded, number=3, source="entropy>3", literals=[TOKEN_IDS]),
    _event(
        e.ConditionRejected,
        source='token="qq"',
        code="no_token",
        message='"qq" is no single token',
        hint="Use one of the pieces",
    ),
    _event(e.ConditionRemoved, number=3),
    _event(e.ConditionDisabled, number=3, message="it took over 20 ms"),
    _event(e.WatchSet, tokens=[TOKEN_IDS]),
    c.AddCondition(source="entropy>3"),
    c.RemoveCondition(number=3),
    c.SetWatch(texts=[b" Ku"]),
    AskCondition(source="entropy>3"),
    w.SetConditions(
        session="7ZK3M9QP", conditions=[CONDITION_SPEC], watch=pack_ints("I", [700]), cause=CMD
    ),
    w.Resolve(ask=3, sources=["entropy>3"], watch=[b" Ku"]),
    w.Resolved(
        ask=3,
        conditions=[[TOKEN_IDS]],
        watch=[TOKEN_IDS],
        code="no_token",
        message="no single token",
        hint="Use one of its pieces",
    ),
]

CONDITION_SAMPLES: Final[dict[str, msgspec.Struct]] = {
    **{type(sample).__name__: sample for sample in _NEW},
    "PromptSpec-2": _again("PromptSpec", ids=pack_ints("I", [1, 900]), messages=[CHAT_MESSAGE]),
    "SessionSet-2": _again("SessionSet", wanted=WANTED),
    "Commanded-2": _again("Commanded", op="add_condition", text="entropy>3"),
    "Predicted-2": _again("Predicted", watched=WATCHED),
    "Stopped-2": _again(
        "Stopped",
        reason="condition",
        pending=True,
        condition=3,
        source="entropy>3",
        values={"entropy": 3.5, "token": " Ku", "step": 9, "special": False},
    ),
    "Open-2": _again("Open", until=["entropy>3"], watch=[b" Ku"], timeout_s=2.5),
    "OpenSession-3": _again("OpenSession", stops=STOPS),
    "Halt-2": _again("Halt", reason="timeout"),
}
"""Name of the golden file → what it holds."""
