"""The objects inside the JSON lines, from the values in events (CONTRACT section 3).

One function an object; which line they go into is for `jsonl`.
"""

import math

import msgspec

from engine_daemon.export.text import readable
from engine_daemon.protocol.codec import WireError
from engine_daemon.protocol.events import Predicted, Stepped, Stopped
from engine_daemon.protocol.values import CandidateRow, ModelInfo, PromptToken, Restored
from engine_daemon.recording.rows import exp

Line = dict[str, object]
"""One JSON object; CONTRACT names its keys."""


def model(model: ModelInfo) -> Line:
    """The fields of `ready.model`."""
    files = [{"file": f.file, "bytes": f.bytes, "sha256": f.sha256} for f in model.weights_files]
    return {
        "name": model.name,
        "architecture": model.architecture,
        "parameters": model.parameters,
        "dtype": model.dtype,
        "device": model.device,
        "ranks": model.ranks,
        "layers": model.layers,
        "layer_kinds": model.layer_kinds,
        "vocabulary": model.vocabulary,
        "context_length": model.context_length,
        "weights_bytes": model.weights_bytes,
        "weights_files": files,
        "load_s": number(model.load_s),
        "weights_checksum": model.weights_checksum,
        "engine_path": model.engine_path,
    }


def prompt_token(token: PromptToken) -> Line:
    """One entry of `prompt.tokens`."""
    return {
        "id": token.id,
        "text": readable(token.piece),
        "bytes": "" if token.added else token.piece.hex(),
        "special": token.special,
        "start": token.start,
        "end": token.end,
    }


def scored(logprobs: list[float], ranks: list[int]) -> Line:
    """The line `prompt_scored`: null where there is nothing to say, as for the first token."""
    return {
        "event": "prompt_scored",
        "logprobs": [None if not math.isfinite(x) else min(x, 0.0) for x in logprobs],
        "ranks": [rank or None for rank in ranks],
    }


def chosen(predicted: Predicted, stepped: Stepped) -> Line:
    """`step.chosen`."""
    return {
        "id": stepped.id,
        "text": readable(stepped.piece),
        "bytes": "" if stepped.special else stepped.piece.hex(),
        **_raw(stepped.logit, predicted.logsumexp),
        "final_prob": number(exp(stepped.final_logprob)),
        "rank": stepped.rank,
        "how": stepped.how,
        "draw": stepped.draw,
        "interval": _interval(stepped),
    }


def _interval(stepped: Stepped) -> list[float] | None:
    """Of the final probabilities, summed in the sampler's order: where the draw fell."""
    if stepped.before is None:
        return None
    return [stepped.before, min(1.0, stepped.before + exp(stepped.final_logprob))]


def _candidate(row: CandidateRow, logsumexp: float) -> Line:
    return {
        "id": row.id,
        "text": readable(row.piece),
        "bytes": "" if row.special else row.piece.hex(),
        **_raw(row.logit, logsumexp),
        "final_prob": number(exp(row.final_logprob)),
        "dropped_by": row.dropped_by.word,
        "masked": not math.isfinite(row.logit),
    }


def _raw(logit: float, logsumexp: float) -> Line:
    """The model's own numbers for one token; rounding may not lift a logprob over 0."""
    logprob = min(logit - logsumexp, 0.0)
    return {
        "logit": number(logit),
        "logprob": number(logprob),
        "prob": number(exp(logprob)),
    }


def distribution(predicted: Predicted) -> Line:
    """What a step says of its distribution; WireError when its columns do not fit."""
    try:
        rows = predicted.candidates.rows()
    except ValueError as error:
        raise WireError("bad_body", f"columns of candidates do not fit: {error}") from None
    return {
        "candidates": [_candidate(row, predicted.logsumexp) for row in rows],
        "ties_cut": predicted.ties_cut,
        "watched": [] if predicted.watched is None else watched(predicted),
        "entropy_bits": number(predicted.entropy_bits),
        "logsumexp": number(predicted.logsumexp),
        "margin": number(predicted.margin),
        "tail_prob": number(predicted.tail_prob),
    }


def watched(predicted: Predicted) -> list[Line]:
    """`step.watched`; WireError when its columns do not fit."""
    assert predicted.watched is not None
    try:
        rows = predicted.watched.rows()
    except ValueError as error:
        raise WireError("bad_body", f"columns of watched do not fit: {error}") from None
    return [
        {
            "id": row.id,
            "text": readable(row.piece),
            "logit": number(row.logit),
            "prob": number(exp(row.logit - predicted.logsumexp)),
            "rank": row.rank,
        }
        for row in rows
    ]


def condition(stopped: Stopped) -> Line | None:
    """`done.condition`: what stopped it, if a condition did."""
    if stopped.condition is None:
        return None
    values = {
        name: number(value) if isinstance(value, float) else value
        for name, value in stopped.values.items()
    }
    return {"number": stopped.condition, "source": stopped.source, "values": values}


def condition_text(stopped: Stopped) -> str:
    """The same in one line, for people."""
    told = {name: value for name, value in stopped.values.items() if name != stopped.source}
    values = ", ".join(f"{name} {_short(value)}" for name, value in told.items())
    return f"condition {stopped.condition}: {stopped.source}" + (f" ({values})" if values else "")


def _short(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case str():
            return f'"{value}"'
        case _:
            return str(value)


def timing(predicted: Predicted, stepped: Stepped | None) -> Line:
    """Times of a step; one that is pending has none of pick and append."""
    picked: Line = {}
    total: Line = {}
    if stepped is not None:
        picked = {"pick_ms": number(stepped.pick_ms), "append_ms": number(stepped.append_ms)}
        total = {"total_ms": number(stepped.total_ms)}
    ranks = predicted.ranks_ms
    return {
        "tokenize_ms": number(predicted.tokenize_ms),
        "forward_ms": number(predicted.forward_ms),
        **picked,
        "probe_ms": number(predicted.probe_ms),
        **total,
        "waited_ms": number(predicted.waited_ms),
        "ranks_ms": None if ranks is None else [number(ms) for ms in ranks],
        "after_pause": predicted.after_pause,
    }


def _restored(restored: Restored) -> Line:
    """`diverged` is there only where it did."""
    told: Line = {
        "method": restored.method,
        "replayed": restored.replayed,
        "ms": number(restored.ms),
    }
    if restored.diverged is not None:
        first = restored.diverged
        told["diverged"] = {"id": first.id, "margin": number(first.margin)}
    return told


def rest(predicted: Predicted, stepped: Stepped | None) -> Line:
    """Cache, work and stop of a step; the stop of one that is pending is not known."""
    cache, restored = predicted.cache, predicted.restored
    return {
        "cache": {
            "mode": cache.mode,
            "tokens": cache.tokens,
            "growing_bytes": cache.growing_bytes,
            "fixed_bytes": cache.fixed_bytes,
            "allocated_bytes": cache.allocated_bytes,
            "capacity_tokens": cache.capacity_tokens,
            "limit_tokens": cache.limit_tokens,
            "kinds": None
            if cache.kinds is None
            else [msgspec.structs.asdict(kind) for kind in cache.kinds],
        },
        "restored": None if restored is None else _restored(restored),
        "work": {
            "flops": predicted.work.flops,
            "bytes_moved": predicted.work.bytes_moved,
            "kind": "derived",
        },
        "stop": None if stepped is None else stepped.stop,
    }


def number(value: float) -> float | None:
    """Non-finite numbers never appear in the output."""
    return value if math.isfinite(value) else None
