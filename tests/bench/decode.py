"""A step of ours, fast and plain, against `generate`, vLLM and the memory floor, in one run."""

from contextlib import ExitStack
from functools import partial
from mmap import MADV_NOHUGEPAGE, mmap

import torch

from engine_daemon.protocol.values import Sampler
from engine_daemon.worker.engine import Engine
from engine_daemon.worker.order import Desk
from engine_daemon.worker.probe import RowDistribution
from tests.bench import vllm
from tests.bench.engines import (
    Block,
    Running,
    after,
    alternated,
    backend_of,
    bare,
    generate,
    load,
    quotients,
    timed,
)
from tests.bench.going_back import rows as going_back
from tests.bench.table import Row

ROUNDS = 14
CLOSE_ROUNDS = 60
"""Where a difference of two percent is looked for."""
VOCABULARY = 248_320
SHORT, LONG = 64, 4096
_FLOOR = "memory floor: weight bytes ÷ read bandwidth"
_LARGE = 128 * 1024 * 1024 // 4


def run() -> list[Row]:
    """Alternates the contenders in blocks; medians of milliseconds a token."""
    fast, plain = load(plain=False), load(plain=True)
    with ExitStack() as stack:
        close: dict[str, Block] = {
            "bare": bare(fast),
            "ours": Running(fast).block,
            "one candidate": Running(fast, candidates=1).block,
            "plain": Running(plain).block,
            "plain bare": bare(plain),
            "floor": partial(_floor, fast, _ordinary_pages(_LARGE)),
            "floor in huge pages": partial(_floor, fast, torch.ones(_LARGE)),
        }
        quotient = quotients(close, CLOSE_ROUNDS)
        contenders: dict[str, Block] = {
            **close,
            "generate": generate(plain),
            "short": after(fast, SHORT),
            "long": after(fast, LONG),
            "plain long": after(plain, LONG),
        }
        other = vllm.start(stack)
        if other is not None:
            contenders["vllm"] = other
        medians = alternated(contenders, ROUNDS)
    return [
        Row("engine path", fast.loaded.model.engine_path),
        *_steps(medians),
        _close("our step ÷ bare loop", quotient("ours", "bare")),
        _close("--plain-engine: our step ÷ bare loop", quotient("plain", "plain bare")),
        _close("our step ÷ the same, one candidate", quotient("ours", "one candidate")),
        _ratio("our step ÷ memory floor", quotient("ours", "floor"), 1.0, 1.90),
        *_against_vllm(medians),
        *_long(medians),
        *going_back(fast),
        *_large_vocabulary(),
    ]


def _steps(medians: dict[str, float]) -> list[Row]:
    ours = medians["ours"]
    return [
        Row(_FLOOR, f"{medians['floor']:.1f} ms"),
        Row("the same in huge pages", f"{medians['floor in huge pages']:.1f} ms"),
        Row("transformers.generate, a token", f"{medians['generate']:.2f} ms"),
        Row("bare loop (forward + argmax), a token", f"{medians['bare']:.2f} ms"),
        Row("our step, everything reported and packed", f"{ours:.2f} ms"),
        Row("the same with --plain-engine", f"{medians['plain']:.2f} ms"),
        _ratio("our step ÷ generate", ours, medians["generate"], 0.60),
    ]


def _against_vllm(medians: dict[str, float]) -> list[Row]:
    name = "our step ÷ vLLM's LLMEngine.step, logprobs=20"
    if "vllm" not in medians:
        return [Row(name, f"not measured: {vllm.HOW}")]
    return [
        Row("vLLM's LLMEngine.step, logprobs=20", f"{medians['vllm']:.2f} ms"),
        _ratio(name, medians["ours"], medians["vllm"], 0.95),
    ]


def _long(medians: dict[str, float]) -> list[Row]:
    fast, plain = (medians[name] for name in ("long", "plain long"))
    return [
        _extra(f"forward at n={LONG} minus n={SHORT}", fast - medians["short"], 8.0),
        Row(f"forward at n={LONG}, fast · plain", f"{fast:.1f} ms · {plain:.1f} ms"),
    ]


def _extra(name: str, ms: float, goal: float) -> Row:
    return Row(name, f"{ms:.2f} ms", f"≤ {goal:.1f} ms", ms <= goal)


def _large_vocabulary() -> list[Row]:
    """Looking at one row of 248,320 logits in bf16: the report, and a sampler on top."""
    row = (torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(1)) * 3).bfloat16()
    desk = Desk(VOCABULARY)

    def look(sampler: Sampler, logits: torch.Tensor) -> None:
        distribution = RowDistribution(logits, desk)
        distribution.kept()
        evaluation = distribution.evaluate(sampler, [])
        evaluation.report(20)
        evaluation.pick(0.5)

    wide = Sampler(greedy=False, top_p=0.9)
    looks = {
        "top-20, entropy, row copy": (Sampler(), row, 1.0),
        "the same with top-p 0.9": (Sampler(greedy=False, temperature=0.5, top_p=0.9), row, 1.5),
        "the same with top-p 0.9, wide": (wide, row, 1.5),
        "the same with top-p 0.9, flat": (wide, row / 8, 1.5),
    }

    def block(sampler: Sampler, logits: torch.Tensor) -> list[float]:
        return [timed(lambda: look(sampler, logits)) for _ in range(20)]

    contenders = {name: partial(block, sampler, on) for name, (sampler, on, _) in looks.items()}
    medians = alternated(contenders, 5)
    return [
        _extra(f"vocabulary 248,320: {name}", medians[name], goal)
        for name, (_, _, goal) in looks.items()
    ]


def _ratio(name: str, value: float, reference: float, goal: float) -> Row:
    ratio = value / reference
    return Row(name, f"{ratio:.3f}", f"≤ {goal:.2f}", ratio <= goal)


def _close(name: str, ratio: float) -> Row:
    return _ratio(name, ratio, 1.0, 1.02)


def _ordinary_pages(count: int) -> torch.Tensor:
    """Ones in pages of the size that the machine gives without being asked."""
    room = mmap(-1, 4 * count)
    room.madvise(MADV_NOHUGEPAGE)
    return torch.frombuffer(room, dtype=torch.float32).fill_(1.0)


def _floor(engine: Engine, buffer: torch.Tensor) -> list[float]:
    """Reading the weights once at the bandwidth that a sum over a large buffer reaches: the best
    of a few, as often as others have their turn."""
    best = min(timed(buffer.sum) for _ in range(4))
    return [best * backend_of(engine)._weights_bytes / buffer.nbytes]
