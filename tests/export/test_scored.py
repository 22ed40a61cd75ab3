"""The line `prompt_scored`, and a cache told by kind of layer."""

import json
import math

import msgspec

from engine_daemon.export.jsonl import JsonLines, to_bytes
from engine_daemon.export.objects import Line
from engine_daemon.protocol import events as e
from engine_daemon.protocol.packing import pack_floats, pack_ints
from engine_daemon.protocol.values import CacheKind
from tests.recording.logs import commanded, opened, predicted, prompt_set, stepped

SCORED = e.PromptScored(
    t_ns=1,
    wall_ns=2,
    logprobs=pack_floats("f", [math.nan, -1.5, 1e-7, -math.inf]),
    ranks=pack_ints("I", [0, 3, 1, 300]),
)


def lines_of(*events: e.Event) -> list[Line]:
    lines = JsonLines()
    made = [line for seq, event in enumerate(events) for line in lines.feed(seq, event)]
    return [json.loads(to_bytes(line)) for line in made]


def test_contracts_keys_and_null_for_what_is_none() -> None:
    log = (opened(), commanded("open"), prompt_set(), SCORED, predicted(0), stepped(0))
    prompt, scored, step = lines_of(*log)
    assert [prompt["event"], step["event"]] == ["prompt", "step"]
    assert scored == {
        "event": "prompt_scored",
        "logprobs": [None, -1.5, 0.0, None],
        "ranks": [None, 3, 1, 300],
    }


def test_the_cache_by_kind() -> None:
    before = predicted(0)
    kind = CacheKind(kind="recurrent", layers=3, bytes=12, growth="fixed")
    cache = msgspec.structs.replace(before.cache, kinds=[kind])
    log = (opened(), msgspec.structs.replace(before, cache=cache), stepped(0))
    (step,) = lines_of(*log)
    cache_line = step["cache"]
    assert isinstance(cache_line, dict)
    assert cache_line["kinds"] == [
        {"kind": "recurrent", "layers": 3, "bytes": 12, "growth": "fixed"}
    ]
