"""How a model is loaded: what does not fit, before and while it decodes; what is dequantised."""

import json
import re
import resource
from pathlib import Path

import pytest

from tests.end_to_end.command import Place
from tests.worker.checkpoints import save_sparse, save_tiny_gguf, save_tokenizer, tiny_model

pytestmark = pytest.mark.engine
PLACE = ("--device", "cpu")


@pytest.mark.parametrize("command", ["run", "daemon"])
def test_a_model_that_does_not_fit_is_refused_in_two_lines(
    place: Place, tmp_path: Path, command: str
) -> None:
    """Two terabytes in bf16, of which the disk holds none."""
    folder = save_sparse(tmp_path / "Huge", layers=125, width=36864)
    words = ("run", "--json") if command == "run" else ("daemon", "start")
    text = ("hi",) if command == "run" else ()
    done = place.run(*words, "--model", str(folder), *PLACE, *text, code=3)
    lines = [
        line
        for line in done.err.splitlines()
        if "the model needs" in line or "Nothing here" in line
    ]
    assert len(lines) == 2, done
    assert re.search(r"the model needs \d+\.\d [GT]B \(\d+\.\d [GT]B weights in bf16, ", lines[0])
    assert re.search(r"scratch\) and cpu has \d+\.\d GB free", lines[0])
    assert lines[1] == "Nothing here would fit it: free some memory, or use a smaller model"
    if command == "run":
        last = done.lines[-1]
        assert (last["event"], last["code"]) == ("error", "no_memory")
        assert last["hint"] == lines[1]


def test_an_engine_that_runs_out_of_memory_says_what_it_needed(
    place: Place, tmp_path: Path
) -> None:
    """The system itself refuses: the worker may have hardly any more address space, and is to read
    a prompt at once, which takes more than what it freed before and kept."""
    folder = save_sparse(tmp_path / "Small", layers=2, width=1024)
    options = ("--dtype", "fp32", "--plain-engine")
    place.run("daemon", "start", "--model", str(folder), *PLACE, *options)
    (pid,) = place.status()["engine"]["details"]["pids"]
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    used = int(re.search(r"VmSize:\s+(\d+)", status)[1]) * 1024  # type: ignore[index]
    resource.prlimit(pid, resource.RLIMIT_AS, (used + 2**22, resource.RLIM_INFINITY))
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps([3 + i % 100 for i in range(1900)]))
    words = ("run", "--json", "--no-kv-cache", "--prompt-ids", str(ids), "--steps", "2")
    done = place.run(*words, code=3)
    last = done.lines[-1]
    assert (last["event"], last["code"]) == ("error", "no_memory")
    needed = r"(more memory is|[\d.]+ [kMG]B more are) needed and cpu has [\d.]+ [kMG]?B free in"
    assert re.search(needed, last["message"])
    assert "close other sessions, or use a smaller --max-context" in last["message"]
    resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    again = place.json(*words)
    assert again[-1]["reason"] == "length"


def test_weights_that_make_no_number_are_an_error_of_the_engine(
    place: Place, tmp_path: Path
) -> None:
    """It says what may be done, and leaves the session and the engine as they are."""
    import torch

    folder = tmp_path / "Damaged"
    model = tiny_model("llama")
    with torch.no_grad():
        model.model.norm.weight[5] = float("nan")
    model.save_pretrained(folder)
    save_tokenizer(folder)
    done = place.run("run", "--json", "--model", str(folder), *PLACE, "w1", code=5)
    last = done.lines[-1]
    assert last["event"] == "error"
    assert last["message"].startswith("the model produced a NaN or infinite logit. The weights may")
    assert "--dtype" in last["message"]
    assert "Traceback" not in done.err
    assert place.status()["engine"]["word"] == "ready"


def test_a_gguf_says_that_its_weights_are_dequantised(place: Place, tmp_path: Path) -> None:
    place.env["XDG_CACHE_HOME"] = str(place.root / "cache")  # the user's is none of its business
    path = save_tiny_gguf(tmp_path / "Tiny.Q8_0.gguf", "Q8_0")
    words = ("run", "--model", str(path), *PLACE, "--steps", "2")
    lines = place.json(*words, "--json", "ab")
    note = "Tiny.Q8_0.gguf is a GGUF: its weights (Q8_0) are dequantised to bf16"
    (ready,) = [line for line in lines if line["event"] == "ready"]
    assert ready["warnings"] == [note]
    assert note not in place.run(*words, "ab").err  # it was loaded already
    assert f"note: {note}" in place.run("daemon", "status").out.decode()
    assert f"note: {note}" in place.run("daemon", "restart").err
    place.run("daemon", "stop")
    assert f"note: {note}" in place.run(*words, "ab").err
