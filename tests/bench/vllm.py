"""vLLM beside ours: its steps, in a process of its own, in an environment of its own.

`make bench-vllm` makes the environment; `LLM_INSPECT_BENCH_VLLM` names another one.
"""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from engine_daemon.paths import paths_for
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker import models
from tests.bench.engines import BLOCK, Block

VARIABLE = "LLM_INSPECT_BENCH_VLLM"
DEFAULT = Path(".venv-vllm")
HOW = f"`make bench-vllm`, or set {VARIABLE} to an environment that has vLLM"
_STEPS = Path(__file__).with_name("vllm_steps.py")


def start(stack: ExitStack) -> Block | None:
    """A contender; None where there is no such environment. Ends with `stack`."""
    python = Path(os.environ.get(VARIABLE) or DEFAULT) / "bin" / "python"
    if not python.exists():
        return None
    folder = models.locate(EngineOptions(cache_dir=str(paths_for().cache)), lambda *_: None)
    process = subprocess.Popen(
        [python, "-P", _STEPS, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "GOMP_SPINCOUNT")},
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    assert process.stdin is not None
    assert process.stdout is not None
    asked, told = process.stdin, process.stdout
    if not _ready(told):
        print(f"vLLM did not start: {python} {_STEPS} {folder}", file=sys.stderr)
        return None

    def block() -> list[float]:
        print(BLOCK, file=asked, flush=True)
        times: list[float] = json.loads(told.readline())
        return times

    return block


def _ready(told: IO[str]) -> bool:
    return any(line == "ready\n" for line in told)
