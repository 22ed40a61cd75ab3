"""Events of made-up sessions, and logs of them, for the tests of recording and export."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine_daemon.protocol import events as e
from engine_daemon.protocol import values
from engine_daemon.protocol.codec import pack_event
from engine_daemon.protocol.packing import pack_floats, pack_ints
from engine_daemon.protocol.values import (
    CacheReport,
    Candidates,
    DroppedBy,
    ModelInfo,
    Sampler,
    WeightsFile,
    Work,
)
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.format import frame

UNKNOWN = b"\x81\xa1k\xa8Teleport"
"""An event of a kind that is not known here."""

MODEL = ModelInfo(
    name="tiny",
    architecture="TinyForCausalLM",
    parameters=1000,
    dtype="fp32",
    device="cpu",
    ranks=1,
    layers=2,
    layer_kinds={"full_attention": 2},
    vocabulary=300,
    context_length=64,
    weights_bytes=4000,
    weights_files=[WeightsFile(file="model.safetensors", bytes=4096)],
    load_s=0.5,
    engine_path="packed",
)


def opened(session: str = "7ZK3M9QP", *, format: int = e.FORMAT, name: str = "default") -> e.Opened:  # noqa: A002
    """Frame 0."""
    return e.Opened(
        t_ns=1,
        wall_ns=2,
        format=format,
        session=session,
        created_ns=2,
        host="box",
        name=name,
        tool="llm-inspect 0.1.0",
        title="",
    )


def engine_started(model: ModelInfo = MODEL, engine: int = 1) -> e.EngineStarted:
    """The scripted engine came."""
    return e.EngineStarted(
        t_ns=1,
        wall_ns=2,
        engine=engine,
        backend="scripted",
        synthetic=True,
        weights_id="w",
        tokenizer_id="t",
        eos_ids=[256],
        model=model,
    )


def prompt_set(pieces: Sequence[bytes] = (b"Hello", b" world")) -> e.PromptSet:
    """A prompt of these pieces, after a `<bos>` that the tokenizer added."""
    text = b"".join(pieces)
    ends = [len(b"".join(pieces[: i + 1])) for i in range(len(pieces))]
    return e.PromptSet(
        t_ns=1,
        wall_ns=2,
        text=text,
        normalised=None,
        template=False,
        seed=0,
        warnings=[],
        tokenize_ms=0.25,
        ids=pack_ints("I", [257, *range(10, 10 + len(pieces))]),
        special=bytes([1] + [0] * len(pieces)),
        added=bytes([1] + [0] * len(pieces)),
        starts=pack_ints("I", [e.NO_OFFSET, 0, *ends[:-1]][: len(pieces) + 1]),
        ends=pack_ints("I", [e.NO_OFFSET, *ends]),
        piece_len=pack_ints("H", [5, *map(len, pieces)]),
        pieces=b"<bos>" + text,
    )


def session_set(max_steps: int | None = None) -> e.SessionSet:
    """The session's own settings."""
    return e.SessionSet(
        t_ns=1, wall_ns=2, candidates=3, cache_mode="kv", limit_tokens=None, max_steps=max_steps
    )


def sampler_set(step: int = 0, sampler: Sampler | None = None, salt: int = 0) -> e.SamplerSet:
    """Another sampler."""
    return e.SamplerSet(t_ns=1, wall_ns=2, step=step, sampler=sampler or Sampler(), salt=salt)


def commanded(op: str, goal: int | None = None, step: int = 0) -> e.Commanded:
    """Somebody asked for something."""
    return e.Commanded(t_ns=1, wall_ns=2, step=step, op=op, who="me@box", goal=goal)


def predicted(
    step: int, *, prompt: int = 3, entropy: float = 1.5, logsumexp: float = 4.0, **fields: object
) -> e.Predicted:
    """A distribution with three candidates, one dropped and one masked."""
    first = step == 0
    values: dict[str, object] = {
        "phase": "prefill" if first else "decode",
        "position": prompt + step,
        "processed": prompt if first else 1,
        "candidates": Candidates(
            ids=pack_ints("I", [65, 66, 256]),
            logit=pack_floats("f", [3.5, 2.0, -math.inf]),
            final_logprob=pack_floats("f", [0.0, -math.inf, -math.inf]),
            dropped_by=bytes([DroppedBy.KEPT, DroppedBy.GREEDY, DroppedBy.MASK]),
            special=bytes([0, 0, 1]),
            piece_len=pack_ints("H", [1, 2, 5]),
            pieces=b"A\xe2\x98<eos>",
        ),
        "ties_cut": False,
        "margin": 0.25,
        "tail_prob": 0.125,
        "forward_ms": 2.0,
        "probe_ms": 0.5,
        "cache": CacheReport(mode="kv", tokens=prompt + step),
        "work": Work(flops=100, bytes_moved=200),
    }
    known = {"entropy_bits": entropy, "logsumexp": logsumexp}
    return e.Predicted(t_ns=1, wall_ns=2, step=step, **(values | known | fields))  # type: ignore[arg-type]


def stepped(
    step: int,
    *,
    token: int = 65,
    piece: bytes = b"A",
    stop: e.StepStop | None = None,
    **fields: object,
) -> e.Stepped:
    """A token became part of the sequence."""
    values: dict[str, object] = {
        "special": False,
        "logit": 3.5,
        "final_logprob": 0.0,
        "rank": 1,
        "how": "greedy",
        "pick_ms": 0.25,
        "append_ms": 0.125,
        "total_ms": 2.875,
    }
    return e.Stepped(
        t_ns=1,
        wall_ns=2,
        step=step,
        id=token,
        piece=piece,
        stop=stop,
        **(values | fields),  # type: ignore[arg-type]
    )


def stopped(step: int, reason: values.StopReason = "goal", *, pending: bool = True) -> e.Stopped:
    """The session stands."""
    return e.Stopped(t_ns=1, wall_ns=2, step=step, reason=reason, pending=pending)


def closed(count: int, by: str = "user") -> e.Closed:
    """The log is over."""
    return e.Closed(t_ns=1, wall_ns=2, count=count, by=by)


def reopened() -> e.Reopened:
    """The log was taken up again."""
    return e.Reopened(t_ns=1, wall_ns=2, epoch=b"epoch-02", lost_bytes=0)


def session(pieces: Sequence[bytes] = (b"A", b"B", b"C"), *, close: bool = True) -> list[e.Event]:
    """A session that opened running, generated these pieces and ended at its length."""
    log: list[e.Event] = [
        opened(),
        commanded("open", goal=None),
        session_set(max_steps=len(pieces)),
        sampler_set(),
        prompt_set(),
        engine_started(),
    ]
    for step, piece in enumerate(pieces):
        last = step == len(pieces) - 1
        stop: e.StepStop | None = "length" if last else None
        log += [predicted(step), stepped(step, token=65 + step, piece=piece, stop=stop)]
    log.append(stopped(len(pieces), "length", pending=False))
    return [*log, closed(len(log), by="run")] if close else log


def packed(events: Iterable[e.Event]) -> list[bytes]:
    """The payloads."""
    return [pack_event(event) for event in events]


def fold(*events: e.Event) -> Columns:
    """These events as a log from 0 on, folded."""
    columns = Columns()
    columns.extend(enumerate(packed(events)))
    return columns


def framed(payloads: Iterable[bytes]) -> list[bytes]:
    """The frames of a log."""
    return [frame(seq, payload) for seq, payload in enumerate(payloads)]


def write_log(path: Path, events: Iterable[e.Event]) -> list[bytes]:
    """Put a log there; gives the payloads."""
    payloads = packed(events)
    path.write_bytes(b"".join(framed(payloads)))
    return payloads
