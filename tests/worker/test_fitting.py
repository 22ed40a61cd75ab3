"""What a model that does not fit is told: what it needs, what is there, who has it, what would."""

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t

from engine_daemon.errors import Exit, InspectError
from engine_daemon.worker import memory
from engine_daemon.worker.fitting import Need, check_memory
from engine_daemon.worker.memory import is_short, tried_bytes
from engine_daemon.worker.placement import Place
from tests.worker.checkpoints import save_sparse
from tests.worker.test_host_memory import held

pytestmark = pytest.mark.engine
GB = 10**9
CPU = torch.device("cpu")
REFUSED = """
import json, resource, sys
from pathlib import Path
from engine_daemon.errors import InspectError
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.backends.hf import HfBackend

lines = Path("/proc/self/status").read_text().splitlines()
(used,) = [int(x.split()[1]) * 1024 for x in lines if x.startswith("VmSize:")]
resource.setrlimit(resource.RLIMIT_AS, (used + 2_500_000_000, -1))
options = EngineOptions(model=sys.argv[1], device="cpu", dtype=sys.argv[2], tp=int(sys.argv[3]))
try:
    HfBackend().load(options, sys.argv[1], lambda *_: None)
except InspectError as error:
    print(json.dumps([error.message, error.hint, error.exit_code, error.code]))
"""


def refusal(folder: Path, dtype: str, tp: int = 1) -> list[Any]:
    """What a process that may have 2.5 GB says about the model in `folder`."""
    command = [sys.executable, "-c", REFUSED, str(folder), dtype, str(tp)]
    said: list[Any] = json.loads(subprocess.check_output(command, text=True))
    return said


def test_a_file_of_zeros_is_a_checkpoint(tmp_path: Path) -> None:
    """The one that the tests below load: as many bytes as its header says, none of them on disk."""
    folder = save_sparse(tmp_path, layers=2, width=512)
    path = folder / "model.safetensors"
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    end = max(entry["data_offsets"][1] for entry in header.values())
    assert path.stat().st_size == 8 + length + end
    model = t.AutoModelForCausalLM.from_pretrained(folder)
    assert end == sum(x.nbytes for x in model.parameters())


def test_a_model_beyond_the_limit_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    """3.6 GB in fp32 and 1.8 GB in bf16, where 2.5 GB may be had."""
    folder = save_sparse(tmp_path, layers=8, width=3072)
    message, hint, code, word = refusal(folder, "fp32")
    weights = torch.finfo(torch.float32).bits // 16 * (folder / "model.safetensors").stat().st_size
    assert (code, word) == (Exit.MODEL, "no_memory")
    assert f"({weights / 1e9:.1f} GB weights in fp32, " in message
    assert " smallest cache and scratch) and cpu has 2." in message
    assert message.endswith(" GB free in ulimit -v")
    assert hint.startswith("Would fit: --dtype bf16 (")
    assert len(f"{message}\n{hint}".splitlines()) == 2


def test_nothing_would_fit(tmp_path: Path) -> None:
    """Two terabytes."""
    folder = save_sparse(tmp_path, layers=125, width=36864)
    message, hint, code, _ = refusal(folder, "auto", tp=2)
    assert code == Exit.MODEL
    assert " TB weights in bf16, " in message
    assert hint == "Nothing here would fit it: free some memory, or use a smaller model"


def test_who_holds_the_memory_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_NAMED", 10**6)
    monkeypatch.setattr(memory, "_WORTH_NAMING", 10**9)
    with held(150_000_000, "of somebody else") as pid:
        message = refused("bf16", {"bf16": Need(10**15, 0)}, Place((CPU,))).message
    assert f" (pid {pid}) 1" in message.partition(", held by ")[2]


def refused(*arguments: Any) -> InspectError:
    with pytest.raises(InspectError) as raised:
        check_memory(*arguments)
    assert (raised.value.exit_code, raised.value.code) == (Exit.MODEL, "no_memory")
    return raised.value


def _never(device: Any) -> tuple[int, int]:
    raise AssertionError(f"CUDA was asked about {device}, which makes a context there")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """Four GPUs with so much free, and the tool of their driver."""
    gib = 2**30
    free = [10 * gib, 40 * gib, 30 * gib, 20 * gib]

    def number(device: Any) -> int:
        return device if isinstance(device, int) else int(device.index)

    class Properties:
        def __init__(self, device: Any) -> None:
            self.uuid = f"aaaa-{number(device)}"

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(free))
    monkeypatch.setattr(torch.cuda, "get_device_properties", Properties)
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(
        "#!/bin/sh\n"
        'test "$1" = --format=csv,noheader,nounits || exit 2\n'
        'case "$2" in\n'
        "--query-compute-apps=gpu_uuid,pid,used_gpu_memory)\n"
        'echo "GPU-aaaa-0, 999999991, 60000"\n'
        'echo "GPU-aaaa-1, 999999992, 30000"\n'
        'echo "GPU-aaaa-0, 1, 70"\n'
        'echo "GPU-aaaa-0, 999999993, [N/A]" ;;\n'
        "--query-gpu=uuid,memory.free)\n"
        f'while read it; do echo "$it"; done < {tmp_path}/free ;;\n'
        "*) exit 2 ;; esac\n"
    )
    monkeypatch.setattr(torch.cuda, "mem_get_info", _never)
    lines = [f"GPU-aaaa-{i}, {size // 2**20}" for i, size in enumerate(free)]
    (tmp_path / "free").write_text("\n".join(lines) + "\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    return free


def on(*numbers: int) -> Place:
    return Place(tuple(torch.device("cuda", x) for x in numbers))


def test_each_device_that_is_short_is_named_with_who_holds_it(gpus: list[int]) -> None:
    needs = {"bf16": Need(50 * GB, GB)}
    check_memory("bf16", needs, on(1, 2))
    error = refused("bf16", needs, on(0, 1, 3), lambda ranks: ranks in (1, 2))
    assert error.message == (
        "the model needs 17.7 GB on each device (16.7 GB weights in bf16, 1.0 GB smallest cache "
        "and scratch) and cuda:0 has 10.7 GB free, held by a process of ? (pid 999999991) 62.9 GB"
    )
    assert error.hint.startswith("Would fit: --device cuda --tp 2 (26.0 GB each)")


def test_what_would_fit(gpus: list[int]) -> None:
    needs = {"fp32": Need(32 * GB, GB), "bf16": Need(16 * GB, GB), "fp16": Need(16 * GB, GB)}
    hint = refused("fp32", needs, on(3), lambda ranks: True).hint
    assert hint.startswith(
        "Would fit: --device cuda:1 (42.9 GB free), or --device cuda --tp 2 (17.0 GB each), or "
        "--dtype bf16 (17.0 GB)"
    )
    assert "--dtype" not in refused("fp32", needs, on(0)).hint
    everywhere = {"bf16": Need(10**15, GB)}
    assert refused("bf16", everywhere, on(0)).hint.startswith("Nothing here would fit")


def test_without_the_tool_nobody_is_named(
    gpus: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (gpus[device.index], 0))
    assert "held by" not in refused("bf16", {"bf16": Need(70 * GB, 0)}, on(0)).message


@pytest.mark.parametrize(
    ("said", "tried"),
    [
        ("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 24 "
         "bytes. Error code 12 (Cannot allocate memory)", 24),
        ("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79 GiB",
         5 * 2**29),
        ("unable to mmap 5 bytes from file: Cannot allocate memory (12)", None),
    ],
)  # fmt: skip
def test_errors_that_mean_it(said: str, tried: int | None) -> None:
    assert is_short(RuntimeError(said))
    assert tried_bytes(RuntimeError(said)) == tried
    assert not is_short(RuntimeError("shapes differ"))


def test_a_real_allocation_that_fails() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**50, dtype=torch.uint8)
    assert is_short(raised.value)
    assert tried_bytes(raised.value) == 2**50
