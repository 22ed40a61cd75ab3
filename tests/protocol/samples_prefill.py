"""Samples of long prompts, scores, naive measurements and weights: see `samples`."""

from typing import Final

import msgspec

from engine_daemon.protocol import commands as c
from engine_daemon.protocol import events as e
from engine_daemon.protocol import state as s
from engine_daemon.protocol import values as v
from engine_daemon.protocol import worker as w
from engine_daemon.protocol.packing import pack_floats, pack_ints

_CMD: Final = bytes(range(16))


def _event(kind: type[e.Event], **fields: object) -> e.Event:
    base = {"t_ns": 123_456_789, "wall_ns": 1_767_225_600_123_456_789, "branch": 1, "step": 9}
    return kind(**base, cause=_CMD, **fields)  # type: ignore[arg-type]  # any event's fields


_NEW: list[msgspec.Struct] = [
    v.CacheKind(kind="full_attention", layers=30, bytes=184_320, growth="growing"),
    _event(e.Prefilled, done=512, total=1300, forward_ms=210.5, waited_ms=14.25),
    _event(
        e.PromptScored,
        logprobs=pack_floats("f", [float("nan"), -1.5]),
        ranks=pack_ints("I", [0, 3]),
    ),
    _event(e.NaiveMeasured, length=128, ms=62.5, left=2),
    c.MeasureNaive(lengths=[8, 128]),
    c.CheckWeights(),
    s.WeightsCheck(checksum="ab" * 32, same=True, wall_ns=7, ms=190.5, running=True),
    w.Measure(session="7ZK3M9QP", lengths=[8, 128], cause=_CMD),
    w.SumWeights(),
    w.WeightsSummed(checksum="ab" * 32, ms=190.5),
]

_GROWN: list[msgspec.Struct] = [
    v.Stops(score=True),
    v.CacheReport(
        mode="kv",
        kinds=[v.CacheKind(kind="recurrent", layers=48, bytes=1024, growth="fixed")],
        device_used_bytes=2_000_000,
        device_total_bytes=8_000_000,
    ),
    v.ModelInfo(
        name="smollm2-135m",
        architecture="LlamaForCausalLM",
        parameters=134_515_008,
        dtype="bf16",
        device="cpu",
        ranks=1,
        layers=30,
        layer_kinds={"full_attention": 30},
        vocabulary=49_152,
        context_length=8192,
        weights_bytes=269_030_016,
        weights_files=[],
        load_s=1.5,
        weights_checksum="cd" * 32,
    ),
    w.EngineOptions(verify=True),
    s.EngineState(
        word="ready", weights=s.WeightsCheck(checksum="ab", same=False, wall_ns=7, ms=1.5)
    ),
    _event(
        e.SessionSet,
        candidates=20,
        cache_mode="kv",
        limit_tokens=None,
        max_steps=None,
        score_prompt=True,
    ),
    c.Open(prompt=v.PromptSpec(text=b"Hello"), score_prompt=True),
    c.RunTo(step=0, read=1024),
    w.Go(session="7ZK3M9QP", step=0, read=1024),
    w.OpenSession(
        session="7ZK3M9QP",
        branch=0,
        prompt_ids=pack_ints("I", [1, 900]),
        ids=b"",
        sampler=v.Sampler(),
        salt=0,
        candidates=20,
        cache_mode="kv",
        limit_tokens=None,
        max_steps=None,
        tokenize_ms=0.0,
        restored=False,
        stops=v.Stops(score=True),
    ),
]

PREFILL_SAMPLES: Final[dict[str, msgspec.Struct]] = {
    **{type(sample).__name__: sample for sample in _NEW},
    **{f"{type(sample).__name__}-prefill": sample for sample in _GROWN},
}
"""New structs, and older ones with the fields that came with them."""
