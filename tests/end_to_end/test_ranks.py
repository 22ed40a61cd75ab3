"""`--tp`: the real command on several ranks, with a checkpoint laid out as the large one is."""

import os
import signal
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.events import EngineLost
from engine_daemon.recording.reader import Recording
from tests.daemons import wait_for
from tests.end_to_end.command import Line, Place, alive
from tests.worker import published_fp8
from tests.worker.checkpoints import save_tiny

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("ranks")]

PROMPT = "the cafe\u0301 on the corner"
STEPS = 5
LOAD_S = 180.0
"""How long two ranks may take to come up again on a busy machine."""


def expected(folder: Path, ids: list[int]) -> tuple[list[int], list[Any], Any]:
    """Greedy ids, the row before each, and the rows of the prompt, by plain transformers."""
    import torch

    model = published_fp8.dequantised_model(folder, torch.float32)
    path, rows = list(ids), []
    with torch.inference_mode():
        whole = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        for _ in range(STEPS):
            logits = model(input_ids=torch.tensor([path]), use_cache=False).logits[0, -1]
            rows.append(logits)
            path.append(int(logits.argmax()))
    return path[len(ids) :], rows, whole


def engine_is(place: Place, start: int) -> bool:
    """The engine is ready, in its start of this number."""
    engine = place.status()["engine"]
    return bool(engine["word"] in ("ready", "busy") and engine["engine"] == start)


def listening_beyond_loopback(pid: int) -> list[object]:
    """Network sockets of a daemon and all that it started, other than on loopback: the ranks meet
    each other there."""
    daemon = psutil.Process(pid)
    family = [daemon, *daemon.children(recursive=True)]
    assert len(family) == 4
    sockets = [one for process in family for one in process.net_connections(kind="inet")]
    return [one for one in sockets if one.laddr and not ip_address(one.laddr.ip).is_loopback]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def one(lines: list[Line], event: str) -> Line:
    (found,) = [line for line in lines if line["event"] == event]
    return found


@pytest.mark.fault("S3", "E2")
def test_fp8_on_two_ranks_and_the_death_of_each(place: Place, tmp_path: Path) -> None:
    folder = published_fp8.save(tmp_path / "Tiny3.6-FP8")
    options = ("--model", str(folder), "--tp", "2", "--device", "cpu", "--dtype", "fp32")
    lines = place.json("run", *options, "--json", "--steps", str(STEPS), "--score-prompt", PROMPT)
    check_model_line(one(lines, "ready"))
    check_against_plain(folder, lines)

    engine = place.status()["engine"]
    assert engine["details"]["notes"] == one(lines, "ready")["warnings"]
    (connection,) = place.connections()
    assert listening_beyond_loopback(int(connection["pid"])) == []
    text = place.run("daemon", "status").out.decode()
    assert "fp32 on cpu x 2 ranks" in text
    assert "note: no FP8 kernels for cpu" in text
    session = lose_a_rank(place, partial(kill, engine["details"]["pids"][1]), rank=1)

    # Once more where nothing runs: rank 0 waits for the hub, the other in its socket. The daemon is
    # stopped while the next ranks start.
    place.run("step", session, "2")
    pids = place.status()["engine"]["details"]["pids"]
    kill(pids[0])
    wait_for(lambda: bool(place.status()["engine"]["engine"] == 3), LOAD_S)
    pids += place.status()["engine"]["details"]["pids"]
    place.run("daemon", "stop")
    assert len(pids) == 4
    assert not any(alive(pid) for pid in pids)
    with Recording.open(place.recording(session)) as recording:
        events = [unpack_event(packed) for _, packed in recording.events()]
    lost = [(e.rank, e.signal) for e in events if isinstance(e, EngineLost)]
    assert lost == [(1, "SIGKILL"), (0, "SIGKILL")]


def check_model_line(ready: Line) -> None:
    model = ready["model"]
    assert (model["ranks"], model["device"], model["dtype"]) == (2, "cpu", "fp32")
    assert (model["architecture"], model["engine_path"]) == ("Qwen3_5ForCausalLM", "plain")
    assert model["layer_kinds"] == {"linear_attention": 3, "full_attention": 1}
    assert ready["warnings"] == ["no FP8 kernels for cpu: the FP8 weights are dequantised to fp32"]


def check_against_plain(folder: Path, lines: list[Line]) -> None:
    """Ids, logits and scores of the command against the numbers in the files."""
    prompt = one(lines, "prompt")
    assert prompt["normalised"] == published_fp8.composed(PROMPT)
    ids, rows, whole = expected(folder, [token["id"] for token in prompt["tokens"]])
    assert lines[-1]["ids"] == ids
    for line, row in zip([x for x in lines if x["event"] == "step"], rows, strict=True):
        scale = float(row.abs().max())
        for candidate in line["candidates"]:
            wanted = float(row[candidate["id"]])
            assert candidate["logit"] == pytest.approx(wanted, abs=1e-5 * scale)
        assert len(line["timing"]["ranks_ms"]) == 2
        assert line["cache"]["tokens"] == line["position"]
    scores = whole.log_softmax(-1)
    told = one(lines, "prompt_scored")["logprobs"]
    for place, token in enumerate(prompt["tokens"][1:], 1):
        assert told[place] == pytest.approx(float(scores[place - 1, token["id"]]), abs=1e-4)


def lose_a_rank(place: Place, end: Callable[[], None], rank: int) -> str:
    """`end` a rank while a session runs: one named error, and all goes on. The session."""
    running = place.start("run", "--json", "--steps", "4000", PROMPT)
    session: str = running.until("step", 2)["session"]
    end()
    finished = running.finish(5)
    assert finished.err.count(f"rank {rank} was killed (SIGKILL)") == 1
    last = finished.lines[-1]
    assert (last["event"], last["code"]) == ("error", "engine_lost")
    assert f"rank {rank} was killed (SIGKILL)" in last["message"]
    wait_for(lambda: engine_is(place, 2), LOAD_S)
    assert place.session(session)["status"] == "paused"
    return session


def test_what_does_not_divide_is_refused_before_loading(place: Place, tmp_path: Path) -> None:
    folder = str(save_tiny(tmp_path / "tiny"))
    refused = place.run("run", "--tp", "3", "--device", "cpu", "--model", folder, "x", code=3)
    assert "4 attention heads, 2 key/value heads do not divide by 3 ranks" in refused.err
    assert "Use --tp 1 or 2" in refused.err
    assert refused.out == b""
    refused = place.run("run", "--tp", "2", "--engine", "scripted", "--name", "b", "x", code=3)
    assert "the scripted engine runs on one rank only" in refused.err
