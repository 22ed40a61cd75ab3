"""One sample of every struct that crosses a process or lies in a recording.

Each sets every field to something else than its default, so a field added later makes the golden
test fail until there is a second sample with it. `SAMPLES` is only ever added to: once there are
recordings in the world, the bytes of old samples must stay readable.
"""

from typing import Final

import msgspec

from engine_daemon.protocol import commands as c
from engine_daemon.protocol import events as e
from engine_daemon.protocol import state as s
from engine_daemon.protocol import values as v
from engine_daemon.protocol import worker as w
from engine_daemon.protocol.packing import pack_floats, pack_ints
from engine_daemon.protocol.reads import AskEncode, AskEvents, AskStacks
from tests.protocol.samples_branches import BRANCHES
from tests.protocol.samples_prefill import PREFILL_SAMPLES
from tests.protocol.samples_viewing import VIEWING_SAMPLES

CMD: Final = bytes(range(16))
EPOCH: Final = b"epoch-01"
VIEWER: Final = bytes(range(16, 32))

PROMPT_SPEC: Final = v.PromptSpec(
    text="Grüße".encode(), template=True, system=b"Be brief.", specials=False
)
SAMPLER: Final = v.Sampler(
    greedy=False,
    temperature=0.75,
    top_k=40,
    top_p=0.5,
    min_p=0.125,
    seed=2**64 - 1,
    repetition_penalty=1.25,
    presence_penalty=0.5,
    frequency_penalty=0.25,
)
WEIGHTS_FILE: Final = v.WeightsFile(file="model.safetensors", bytes=269_060_552, sha256="ab" * 32)
MODEL: Final = v.ModelInfo(
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
    weights_files=[WEIGHTS_FILE],
    load_s=1.5,
)
CANDIDATES: Final = v.Candidates(
    ids=pack_ints("I", [12, 700, 49_151]),
    logit=pack_floats("f", [9.5, 8.25, float("-inf")]),
    final_logprob=pack_floats("f", [0.0, float("-inf"), float("-inf")]),
    dropped_by=bytes([v.DroppedBy.KEPT, v.DroppedBy.GREEDY, v.DroppedBy.MASK]),
    special=bytes([0, 0, 1]),
    piece_len=pack_ints("H", [3, 2, 5]),
    pieces=b" Ku\xe2\x98<eos>",
)
CACHE: Final = v.CacheReport(
    mode="kv",
    tokens=8,
    growing_bytes=184_320,
    fixed_bytes=1024,
    allocated_bytes=1_474_560,
    capacity_tokens=64,
    limit_tokens=8192,
)
RESTORED: Final = v.Restored(method="prefill", replayed=7, ms=180.5)
WORK: Final = v.Work(flops=2_152_240_128, bytes_moved=269_214_336)
PLACE: Final = s.Place(kind="ended", branch=1, step=9, reason="eos", done=3, total=4)
ENGINE_STATE: Final = s.EngineState(
    word="loading",
    engine=3,
    backend="scripted",
    model_name="smollm2-135m",
    stage="load",
    done=10,
    total=20,
    model=MODEL,
    synthetic=True,
    code="no_model",
    message="no such model",
    hint="Say which one",
    pid=4711,
)
SESSION_INFO: Final = s.SessionInfo(
    session="7ZK3M9QP",
    title="pods",
    status="paused",
    place=PLACE,
    resident=True,
    head=12,
    created_ns=1_767_225_600_000_000_000,
    other_model=True,
    lease_no=2,
    holder="me@host",
)
VIEWER_INFO: Final = s.ViewerInfo(
    viewer=VIEWER, who="me@host", client="tui", role="controller", lag=5
)
STATE: Final = s.State(
    engine=ENGINE_STATE, sessions=[SESSION_INFO], viewers=[VIEWER_INFO], idle_exit_s=7200.0
)
AT: Final = c.At(branch=1, step=9)
LIMITS: Final = c.Limits(body_bytes=65_536, text_bytes=8_388_608)
ENGINE_OPTIONS: Final = w.EngineOptions(
    backend="scripted",
    model="/models/tiny",
    revision="main",
    device="cuda:0",
    dtype="fp32",
    tp=2,
    max_context=4096,
    cache_dir="/cache",
)


_BASE: Final[dict[str, object]] = {
    "t_ns": 123_456_789,
    "wall_ns": 1_767_225_600_123_456_789,
    "branch": 1,
    "step": 9,
    "cause": CMD,
}
"""The fields that every event has."""


def _event(kind: type[e.Event], **fields: object) -> e.Event:
    return kind(**_BASE, **fields)  # type: ignore[arg-type]  # any event's fields


_VALUES: list[msgspec.Struct] = [
    PROMPT_SPEC,
    SAMPLER,
    WEIGHTS_FILE,
    MODEL,
    CANDIDATES,
    CACHE,
    RESTORED,
    WORK,
    PLACE,
    ENGINE_STATE,
    SESSION_INFO,
    VIEWER_INFO,
    STATE,
    AT,
    LIMITS,
    ENGINE_OPTIONS,
]

_EVENTS: list[msgspec.Struct] = [
    _event(
        e.Opened,
        format=1,
        session="7ZK3M9QP",
        created_ns=1_767_225_600_000_000_000,
        host="box",
        name="default",
        tool="llm-inspect 0.1.0",
        title="pods",
    ),
    _event(
        e.EngineStarted,
        engine=3,
        backend="hf",
        synthetic=False,
        weights_id="aa" * 32,
        tokenizer_id="bb" * 32,
        eos_ids=[2, 49_151],
        model=MODEL,
    ),
    _event(e.EngineLost, engine=3, rank=1, signal="SIGKILL", exit_code=139, message="killed"),
    _event(
        e.SessionSet,
        candidates=20,
        cache_mode="none",
        limit_tokens=4096,
        max_steps=64,
        prompt=PROMPT_SPEC,
        run_to=None,
    ),
    _event(
        e.PromptSet,
        text="<s>Grüße".encode(),
        normalised="▁Grüße".encode(),
        template=True,
        seed=7,
        warnings=["'<s>' is a special token"],
        tokenize_ms=0.25,
        ids=pack_ints("I", [1, 1, 900]),
        special=bytes([1, 1, 0]),
        added=bytes([1, 0, 0]),
        starts=pack_ints("I", [e.NO_OFFSET, 0, 3]),
        ends=pack_ints("I", [e.NO_OFFSET, 3, 10]),
        piece_len=pack_ints("H", [3, 3, 10]),
        pieces="<s><s>▁Grüße".encode(),
    ),
    _event(e.PromptRejected, code="bad_arg", message="the prompt is empty", hint="Write one"),
    _event(e.SamplerSet, sampler=SAMPLER, salt=1),
    _event(e.Commanded, op="force", who="me@host", goal=10, id=700),
    _event(
        e.Predicted,
        phase="decode",
        position=17,
        processed=1,
        candidates=CANDIDATES,
        ties_cut=True,
        entropy_bits=3.5,
        logsumexp=11.0,
        margin=0.125,
        tail_prob=0.0625,
        forward_ms=13.125,
        probe_ms=0.5,
        tokenize_ms=0.25,
        waited_ms=2.5,
        ranks_ms=[13.0, 13.125],
        after_pause=True,
        cache=CACHE,
        work=WORK,
        restored=RESTORED,
    ),
    _event(
        e.Stepped,
        id=49_151,
        piece=b"<eos>",
        special=True,
        logit=8.25,
        final_logprob=-1.5,
        rank=2,
        how="sampled",
        draw=0.625,
        pick_ms=0.25,
        append_ms=0.125,
        total_ms=14.25,
        stop="eos",
    ),
    _event(
        e.Stopped,
        reason="no_memory",
        pending=False,
        message="the cache does not fit",
        need_bytes=2_000_000,
        have_bytes=1_000_000,
    ),
    _event(e.Closed, count=12, by="user"),
    _event(e.Reopened, epoch=EPOCH, lost_bytes=948),
]

_COMMANDS: list[msgspec.Struct] = [
    c.Open(
        prompt=PROMPT_SPEC,
        title="pods",
        sampler=SAMPLER,
        candidates=50,
        cache_mode="none",
        max_steps=64,
        limit_tokens=4096,
        run_to=None,
    ),
    c.RunTo(step=12),
    c.Pause(),
    c.Force(id=700),
    c.SetSampler(sampler=SAMPLER),
    c.Close(by="run"),
    c.StopDaemon(),
    AskEvents(seqs=[4, 5]),
    AskEncode(prompt=PROMPT_SPEC),
    AskStacks(),
]

_VIEWERS: list[msgspec.Struct] = [
    c.Hello(
        min=1, max=1, caps=["force"], client="tui", who="me@host", want="observe", resume=VIEWER
    ),
    c.Sub(session="7ZK3M9QP", start=5, win_bytes=2_097_152, snapshot=True),
    c.Unsub(session="7ZK3M9QP"),
    c.Ack(session="7ZK3M9QP", next=6),
    c.Cmd(cmd=CMD, epoch=EPOCH, do=c.RunTo(step=12), session="7ZK3M9QP", lease_no=2, at=AT),
    c.AskRequest(ask=AskEvents(seqs=[4, 5]), session="7ZK3M9QP"),
    c.Ping(lag=5, next=6),
    c.Welcome(
        ver="1.0",
        tool="llm-inspect 0.1.0",
        caps=["force"],
        ep=EPOCH,
        viewer=VIEWER,
        role="controller",
        limits=LIMITS,
        state=STATE,
    ),
    c.Refuse(code="version", text="protocol 2 is not spoken here", min=1, max=1),
    c.StateMessage(state=STATE),
    c.Batch(session="7ZK3M9QP", start=5, to=7, head=12, durable=11, ev=[(5, b"\x80"), (6, b"")]),
    c.Reply(
        cmd=CMD,
        status="rejected",
        code="stale",
        message="it is elsewhere by now",
        hint="Look again",
        session="7ZK3M9QP",
        at=AT,
    ),
    c.Answer(code="gone", message="no such event", ev=[(5, b"\x80")], prompt=b"\x80", text="main"),
    c.Pong(head=12, durable=11),
    c.ErrorMessage(code="too_big", message="9 MB", limit=8_388_608),
]

_CHILDREN: list[msgspec.Struct] = [
    w.ChildReady(role="worker", version="0.1.0", pid=4711, rank=1),
    w.Load(options=ENGINE_OPTIONS),
    w.Pieces(path="/run/pieces.bin"),
    w.OpenSession(
        session="7ZK3M9QP",
        branch=1,
        prompt_ids=pack_ints("I", [1, 900]),
        ids=pack_ints("I", [700]),
        sampler=SAMPLER,
        salt=1,
        candidates=20,
        cache_mode="kv",
        limit_tokens=4096,
        max_steps=64,
        tokenize_ms=0.25,
        restored=True,
        cause=CMD,
    ),
    w.Go(session="7ZK3M9QP", step=12, cause=CMD),
    w.Halt(session="7ZK3M9QP", cause=CMD),
    w.ForceId(session="7ZK3M9QP", id=700, cause=CMD),
    w.Resample(session="7ZK3M9QP", sampler=SAMPLER, salt=1, cause=CMD),
    w.Drop(session="7ZK3M9QP"),
    w.Seen(session="7ZK3M9QP", next=6),
    w.DumpStacks(ask=3),
    w.Progress(stage="load", done=10, total=20),
    w.Located(model_dir="/models/tiny"),
    w.EngineReady(
        backend="hf", synthetic=False, weights_id="aa" * 32, eos_ids=[2, 49_151], model=MODEL
    ),
    w.LoadFailed(code="no_model", message="no such model", hint="Say which one"),
    w.EventOut(session="7ZK3M9QP", event=b"\x80"),
    w.Alive(phase="decode", counter=99),
    w.Stacks(ask=3, text="main"),
    w.LoadTokenizer(model_dir="/models/tiny", pieces_path="/run/pieces.bin"),
    w.TokenizerReady(tokenizer_id="bb" * 32, vocabulary=49_152, context_length=8192),
    w.Encode(ask=3, prompt=PROMPT_SPEC),
    w.Encoded(ask=3, prompt=b"\x80", code="bad_arg", message="empty", hint="Write one"),
]

SAMPLES: Final[dict[str, msgspec.Struct]] = {
    type(sample).__name__: sample
    for sample in [*_VALUES, *_EVENTS, *_COMMANDS, *_VIEWERS, *_CHILDREN]
} | BRANCHES
"""Name of the golden file → what it holds. A later sample of a struct is `Name-2`, `Name-3` …"""
SAMPLES["OpenSession-2"] = msgspec.structs.replace(SAMPLES["OpenSession"], stands=False)
SAMPLES["SessionInfo-2"] = msgspec.structs.replace(SESSION_INFO, trouble="no space left")
SAMPLES.update(PREFILL_SAMPLES)
SAMPLES.update(VIEWING_SAMPLES)
SAMPLES["EngineOptions-3"] = w.EngineOptions(plain_engine=True)
SAMPLES["Stepped-2"] = msgspec.structs.replace(SAMPLES["Stepped"], before=0.5)
SAMPLES["ModelInfo-2"] = msgspec.structs.replace(MODEL, engine_path="packed+joined+attention")
NOTES: Final = ["the FP8 weights are dequantised to bf16"]
SAMPLES["EngineDetails"] = s.EngineDetails(pids=[4711, 4712], notes=NOTES)
SAMPLES["EngineState-2"] = s.EngineState(word="ready", details=s.EngineDetails(notes=NOTES))
SAMPLES["EngineReady-2"] = msgspec.structs.replace(SAMPLES["EngineReady"], notes=NOTES)
SAMPLES["EngineStarted-2"] = msgspec.structs.replace(SAMPLES["EngineStarted"], notes=NOTES)
