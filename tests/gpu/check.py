"""What only a GPU can show, in one script of eight minutes at most: `python -m tests.gpu.check`.

It makes a checkpoint of the Qwen3.6-27B shape with random weights, loads it through the engine, and
prints a table: step time against the floor, CUDA graphs against eager, what looking costs, going
back, the memory ledger, FP8 against bf16. Numbers that must be right are compared: exit 1 when one
is not; 2 without a GPU. `--device cpu --layers 4 --tiny` walks all that is not CUDA's alone.

Needs torch, transformers, safetensors, tokenizers, accelerate, msgspec and regex; `--site DIR` is a
folder with what the machine's Python lacks (`pip install --target DIR msgspec regex …`).
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch


BANDWIDTH: Final = 4.3e12
"""Bytes a second that this kind of GPU reads (H200: 4.8e12 on paper)."""
_DISK_SHARE: Final = 0.6
_NO_GPU: Final = 2


class Clock:
    """The time that is left; what does not fit into it is named and left out."""

    def __init__(self, minutes: float) -> None:
        self.started = time.monotonic()
        self._end = self.started + 60 * minutes

    def left_s(self) -> float:
        """Seconds."""
        return self._end - time.monotonic()


class Report:
    """Lines of the table, printed as they come; `failed` when a number was not what it must be."""

    def __init__(self, clock: Clock) -> None:
        self.failed = False
        self._clock = clock

    def row(self, measure: str, figure: str, met: bool | None = None) -> None:
        """One line. `met` None: nothing is asked of it."""
        self.failed |= met is False
        mark = {None: "", True: "  ok", False: "  NOT AS IT MUST BE"}[met]
        at = time.monotonic() - self._clock.started
        print(f"{at:6.1f} s  {measure:<58} {figure}{mark}", flush=True)

    def section(self, name: str, needs_s: float, work: Callable[[], None]) -> None:
        """Do a part if there is time for it; an error in it does not hide what comes after."""
        if self._clock.left_s() < needs_s:
            self.row(name, f"left out: {self._clock.left_s():.0f} s left, {needs_s:.0f} s needed")
            return
        try:
            work()
        except Exception as error:  # noqa: BLE001  edge of the script: the rest is worth having
            lines = str(error).splitlines() or [""]
            self.row(name, f"{type(error).__name__}: {lines[0][:160]}", met=False)


def main() -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(prog="tests.gpu.check")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--layers", type=int, default=16, help="a multiple of 4 (default 16)")
    parser.add_argument("--tiny", action="store_true", help="small layers, the same vocabulary")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument(
        "--folder", type=Path, help="where checkpoints go (default: a temporary one)"
    )
    parser.add_argument("--site", type=Path, action="append", default=[])
    given = parser.parse_args()
    sys.path[:0] = [str(Path(__file__).resolve().parents[2]), *map(str, given.site)]
    try:
        import torch
    except ModuleNotFoundError:
        print("torch is not installed: nothing can be checked", file=sys.stderr)
        return _NO_GPU
    if given.layers % 4 or given.layers < 4:
        parser.error("--layers takes a multiple of 4")
    device = torch.device(given.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print(
            f"this torch ({torch.__version__}) sees no CUDA device\n"
            "Run it where there is a GPU, or --device cpu --layers 4 --tiny",
            file=sys.stderr,
        )
        return _NO_GPU
    clock = Clock(given.minutes)
    report = Report(clock)
    with _folder(given.folder) as folder:
        _run(report, device, given, folder)
    print("every number is as it must be" if not report.failed else "SOMETHING IS WRONG, see above")
    return int(report.failed)


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="llm-inspect-gpu-", dir=given))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _run(report: Report, device: "torch.device", given: Any, folder: Path) -> None:
    from tests.gpu import checkpoint

    _machine(report, device)
    size = checkpoint.file_bytes(given.layers, tiny=given.tiny)
    report.row("checkpoint in bf16", f"{size / 1e9:.2f} GB, {given.layers} layers")
    room = shutil.disk_usage(folder).free * _DISK_SHARE
    if size > room:
        report.row("disk", f"{room / 1e9:.1f} GB may be used: give fewer --layers", met=False)
        return
    bf16, fp8 = folder / "bf16", folder / "fp8"
    checkpoint.save(bf16, given.layers, device, tiny=given.tiny)
    report.row("written", "")
    from tests.gpu.measures import Measures

    measures = Measures(report.row, bf16, device, BANDWIDTH)
    slow = 1.0 if given.tiny else 5.0
    whole: list[tuple[str, float, Callable[[], None]]] = [
        ("numbers", 3 * slow, measures.numbers),
        ("steps", 8 * slow, measures.steps),
        ("clock of the device", slow, measures.device_clock),
        ("long context", 4 * slow, measures.long_context),
        ("going back", 10 * slow, measures.going_back),
        ("without a cache", 4 * slow, measures.naive),
        ("memory ledger", slow, measures.ledger),
        ("out of memory", 4 * slow, measures.out_of_memory),
    ]
    for name, needs_s, work in whole:
        report.section(name, needs_s, work)
    step_ms = measures.close()
    report.section("FP8", 16 * slow, lambda: _fp8(report, device, bf16, fp8, step_ms))


def _fp8(report: Report, device: "torch.device", bf16: Path, fp8: Path, step_ms: float) -> None:
    from tests.gpu import checkpoint
    from tests.gpu.measures import Measures

    checkpoint.save_fp8(bf16, fp8, device)
    measures = Measures(report.row, fp8, device, BANDWIDTH)
    measures.numbers()
    measures.steps()
    other_ms = measures.close()
    if step_ms and other_ms:
        report.row("FP8 step ÷ bf16 step", f"{other_ms / step_ms:.2f}")


def _machine(report: Report, device: "torch.device") -> None:
    import torch
    import transformers

    if device.type == "cuda":
        found: Any = torch.cuda.get_device_properties(device)
        free, total = torch.cuda.mem_get_info(device)
        room = f"{free / 1e9:.1f} of {total / 1e9:.1f} GB free"
        name = f"{found.name}, {room}, CUDA {torch.version.cuda}"
    else:
        name = f"CPU, {torch.get_num_threads()} threads"
    report.row("machine", name)
    report.row("torch · transformers", f"{torch.__version__} · {transformers.__version__}")


if __name__ == "__main__":
    sys.exit(main())
