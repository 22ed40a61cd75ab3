"""What `tests.gpu.check` measures of one checkpoint, each part on its own.

Goes through the engine's own backend and sessions; knows no files and no arguments.
"""

import time
from pathlib import Path
from typing import Any, Final, Protocol

import torch

from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.values import Sampler
from engine_daemon.protocol.worker import EngineOptions, Move
from engine_daemon.worker.backends.base import NoMemoryError
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.engine import Engine
from engine_daemon.worker.probe import RowDistribution
from tests.bench.engines import (
    BLOCK,
    PROMPT,
    Block,
    Running,
    Stepping,
    after,
    alternated,
    bare,
    timed,
)
from tests.bench.table import median

ROUNDS: Final = 6
BACK: Final = 64
AHEAD: Final = 75
LONG: Final = 4096
LENGTHS: Final = (64, 512, 2048)
_TOLERANCE: Final = 0.06
"""Of a probability in bf16, and the margin below which another token may win."""
_TOO_MANY: Final = 200_000


class Row(Protocol):
    """A line of the table."""

    def __call__(self, measure: str, figure: str, met: bool | None = None) -> None:
        """`met` None: nothing is asked of it."""
        ...


class Measures:
    """One loaded checkpoint."""

    def __init__(self, row: Row, folder: Path, device: torch.device, bandwidth: float) -> None:
        self._row, self._device, self._bandwidth = row, device, bandwidth
        self._step_ms = 0.0
        self.backend = HfBackend()
        options = EngineOptions(model=str(folder), device=str(device), snapshot_every=32)
        begun = time.monotonic()
        loaded = self.backend.load(options, str(folder), lambda *_: None)
        seconds = time.monotonic() - begun
        model = loaded.model
        size = model.vocabulary
        table = PieceTable("gpu", [b" token%d" % i for i in range(size)], [False] * size)
        self.engine = Engine(self.backend, loaded, table)
        kinds = ", ".join(f"{n} {kind}" for kind, n in model.layer_kinds.items())
        size_gb = model.weights_bytes / 1e9
        row("model", f"{model.dtype} on {model.device}, {kinds}, {size_gb:.2f} GB")
        row("loaded in", f"{seconds:.1f} s ({size_gb / seconds:.2f} GB/s)")
        row("engine path", model.engine_path)
        for note in loaded.notes:
            row("note", note)
        summed = self.backend.sum_weights(lambda *_: None)
        row("weights as they were loaded", summed[:16], met=summed == model.weights_checksum)

    def numbers(self) -> None:
        """Every step against one forward over everything, of the same kernels without a cache."""
        ids = [i * 7919 % 240_000 for i in range(40)]
        cache = self.backend.new_cache("kv")
        distribution = self.backend.forward(ids, cache).distribution
        worst, flips = 0.0, 0
        for step in range(12):
            fresh = self.backend.forward(ids, self.backend.new_cache("none")).distribution
            ours, theirs = (self._row_of(x).softmax(-1) for x in (distribution, fresh))
            worst = max(worst, float((ours - theirs).abs().max()))
            first, second = theirs.topk(2).values.tolist()
            flips += int(ours.argmax() != theirs.argmax() and first - second > _TOLERANCE)
            ids.append(int(ours.argmax()) if step % 2 else 1000 + step)
            distribution = self.backend.forward(ids[-1:], cache).distribution
        cache.free()
        self._row("steps against fresh forwards, |Δp|", f"{worst:.4f}", met=worst <= _TOLERANCE)
        self._row("another token first, beyond the margin", str(flips), met=flips == 0)

    def steps(self) -> None:
        """Bare forwards as a graph and eager, and with everything reported, side by side."""
        contenders: dict[str, Block] = {"bare": bare(self.engine), "eager": self._eager()}
        contenders["reported"] = Running(self.engine).block
        contenders["one candidate"] = Running(self.engine, candidates=1).block
        found = alternated(contenders, ROUNDS)
        moved = self.backend.work(1, len(PROMPT) + BLOCK * ROUNDS).bytes_moved
        floor = moved / self._bandwidth * 1000
        self._step_ms = found["reported"]
        self._row("floor: bytes ÷ 4.3 TB/s", f"{floor:.2f} ms for {moved / 1e9:.2f} GB")
        for name, ms in found.items():
            self._row(f"a step, {name}", f"{ms:.2f} ms, {ms / floor:.2f} x floor")
        graphs = "graphs ÷ eager" if self.backend._graphs is not None else "no graphs: bare ÷ eager"
        self._row(graphs, f"{found['bare'] / found['eager']:.3f}")
        self._row(
            "looking: reported ÷ bare (goal 1.02)", f"{found['reported'] / found['bare']:.3f}"
        )

    def _eager(self) -> Block:
        """Bare forwards without graphs."""
        block, backend = bare(self.engine), self.backend

        def run() -> list[float]:
            graphs, backend._graphs = backend._graphs, None
            try:
                return block()
            finally:
                backend._graphs = graphs

        return run

    def device_clock(self) -> None:
        """Our times against the device's own clock."""
        if self._device.type != "cuda":
            self._row("device clock", "not on a CPU")
            return
        cache = self.backend.new_cache("kv")
        self.backend.forward(PROMPT, cache)
        apart = []
        for _ in range(20):
            event: Any = torch.cuda.Event  # torch leaves it without types
            begin, end = (event(enable_timing=True) for _ in range(2))
            begin.record()
            ms = self.backend.forward([5], cache).ms
            end.record()
            end.synchronize()
            apart.append(begin.elapsed_time(end) - ms)
        cache.free()
        # The events stand around the call, so they take a little more.
        off = median(apart)
        self._row("device clock minus ours, a forward", f"{off:.3f} ms", met=-0.1 <= off <= 0.5)

    def long_context(self) -> None:
        """A step over a short and a long cache, and a long prompt."""
        found = alternated({"short": self._after(64), "long": self._after(LONG)}, 3)
        extra = found["long"] - found["short"]
        self._row(f"a forward at n={LONG} minus n=64", f"{extra:.2f} ms")
        cache = self.backend.new_cache("kv")
        ids = [i * 7919 % 240_000 for i in range(2048)]
        ms = sum(self.backend.forward(ids[i : i + 512], cache).ms for i in range(0, len(ids), 512))
        cache.free()
        self._row("a prompt of 2048 in chunks of 512", f"{ms:.0f} ms, {2048 / ms * 1000:.0f} tok/s")

    def _after(self, length: int) -> Block:
        if self._device.type == "cpu":
            return after(self.engine, length)
        cache = self.backend.new_cache("kv")
        ids = [5] * 512
        for at in range(0, length, 512):
            self.backend.forward(ids[: min(512, length - at)], cache)
        return lambda: [self.backend.forward([5], cache).ms for _ in range(BLOCK // 2)]

    def going_back(self) -> None:
        """64 steps back and one on: a snapshot and what is replayed from it."""
        stepping = Stepping(self.engine)
        steps: list[float] = []
        backs: list[float] = []
        for turn in range(3):
            steps += [timed(stepping.step) for _ in range(AHEAD)]
            session = stepping.session
            kept = session.path[len(session.prompt) : -BACK]
            order = Move(
                session=session.id,
                branch=turn + 1,
                ids=pack_ints("I", kept),
                sampler=Sampler(),
                salt=0,
                look=True,
            )

            def back(order: Move = order) -> None:
                stepping.session.move(order)
                stepping.again()
                stepping.step()

            backs.append(timed(back))
        step = median(steps)
        beyond = (median(backs) - step) / step
        self._row(
            f"{BACK} steps back and one on", f"{beyond:.1f} steps of {step:.2f} ms beyond a step"
        )
        stepping.session.give_back()

    def naive(self) -> None:
        """Forwards without a cache, of growing lengths."""
        cache = self.backend.new_cache("none")
        for length in LENGTHS:
            cache.free()
            ms = self.backend.forward([7] * length, cache).ms
            self._row(f"a forward without a cache, n={length}", f"{ms:.1f} ms")
        cache.free()

    def ledger(self) -> None:
        """What is held, by what it is, against the allocator's own account."""
        cache = self.backend.new_cache("kv")
        self.backend.forward([7] * 300, cache)
        for _ in range(3):
            self.backend.forward([7], cache)
        report = cache.report(None)
        weights = self.backend._weights_bytes
        held = cache.held_bytes()
        self._row("weights", f"{weights / 1e9:.3f} GB")
        for kind in report.kinds or []:
            self._row(f"cache: {kind.kind} ({kind.growth})", f"{kind.bytes / 1e6:.2f} MB")
        self._row(
            "cache: allocated · snapshots", _two(report.allocated_bytes, report.snapshot_bytes)
        )
        foreseen = self.backend.scratch_bytes(2048, 1)
        self._row("foreseen for a forward of 2048 beyond a chunk", f"{foreseen / 1e6:.0f} MB")
        if self._device.type == "cuda":
            used = torch.cuda.memory_allocated(self._device)
            reserved = torch.cuda.memory_reserved(self._device)
            rest = used - weights - held
            self._row("the allocator: used · reserved", _two(used, reserved))
            self._row("used by neither weights nor cache", f"{rest / 1e6:.1f} MB", met=rest >= 0)
            total = report.device_total_bytes
            self._row("the report's device bytes", _two(report.device_used_bytes, total))
        cache.free()

    def out_of_memory(self) -> None:
        """A forward that does not fit is said so, and the next one runs."""
        if self._device.type != "cuda":
            self._row("out of memory", "not on a CPU")
            return
        total = torch.cuda.mem_get_info(self._device)[1]
        torch.cuda.empty_cache()
        used = torch.cuda.memory_reserved(self._device)
        torch.cuda.set_per_process_memory_fraction((used + 2**28) / total, self._device)
        said, right = "nothing", False
        try:
            self.backend.forward([7] * _TOO_MANY, self.backend.new_cache("none"))
        except NoMemoryError as error:
            said, right = error.message, error.need_bytes is not None
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, self._device)
        self._row("out of memory", said[:200], met=right)
        cache = self.backend.new_cache("kv")
        self.backend.forward(PROMPT, cache)
        ms = self.backend.forward([5], cache).ms
        self._row("a step after it", f"{ms:.2f} ms", met=True)

    def close(self) -> float:
        """Free everything; milliseconds of a step as measured, 0 where it was not."""
        self.backend.close()
        del self.engine
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        return self._step_ms

    def _row_of(self, distribution: Any) -> torch.Tensor:
        assert isinstance(distribution, RowDistribution)
        return distribution.row.float()


def _two(one: int | None, other: int | None) -> str:
    words = ("–" if x is None else f"{x / 1e9:.3f} GB" for x in (one, other))
    return " · ".join(words)
