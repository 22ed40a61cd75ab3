"""The script for a GPU refuses where there is none, and its lines that need none run."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.engine
ROOT = Path(__file__).resolve().parents[2]


def check(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.gpu.check", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so() -> None:
    done = check()
    assert done.returncode == 2
    assert "sees no CUDA device" in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert done.stdout == ""


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_all_that_needs_no_gpu_runs_on_a_cpu(tmp_path: Path) -> None:
    words = ("--device", "cpu", "--layers", "4", "--tiny", "--folder", str(tmp_path))
    done = check(*words, "--minutes", "20")
    assert done.returncode == 0, done.stdout + done.stderr
    for row in ("x floor", "looking:", "64 steps back", "weights as they", "FP8 step ÷ bf16 step"):
        assert row in done.stdout
    assert "left out" not in done.stdout
    assert list(tmp_path.iterdir()) == []
