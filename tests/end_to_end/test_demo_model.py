"""The demo model through the whole program, against plain transformers."""

import hashlib
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine_daemon.paths import paths_for
from engine_daemon.protocol.commands import CheckWeights, Close, MeasureNaive
from engine_daemon.protocol.state import State, WeightsCheck
from tests.daemons import environment, watching
from tests.end_to_end.command import Line, Place
from tests.worker.checkpoints import demo_model

pytestmark = [pytest.mark.model, pytest.mark.engine, pytest.mark.xdist_group("demo_model")]

PROMPT = "Kubernetes pods are scheduled by the"
IDS = [59, 23385, 37491, 27781, 359, 13831, 411, 260]
STEPS = 12


@pytest.fixture(scope="module", autouse=True)
def _model_is_there() -> None:
    demo_model()


@pytest.fixture(scope="module")
def bf16() -> Iterator[Place]:
    """A place whose daemon the first `run` starts, for sessions of as many tests as want it so."""
    with Place() as made:
        yield made


@pytest.fixture(scope="module")
def fp32() -> Iterator[tuple[Place, list[Line]]]:
    """The same in fp32, and the lines of the run that started its daemon."""
    words = ("run", "--dtype", "fp32", "--verify", "--json", "--steps", "1", "--score-prompt")
    with Place() as made:
        yield made, made.json(*words, PROMPT)


@cache
def plain(folder: Path) -> Any:
    """The model as transformers loads it, fp32."""
    import torch
    import transformers

    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return loaded.eval()


def expected(ids: list[int], steps: int) -> tuple[list[int], list[Any]]:
    """Greedy ids and the raw probabilities before each, every step computed from the whole."""
    import torch

    path, rows = list(ids), []
    with torch.inference_mode():
        for _ in range(steps):
            logits = plain(demo_model())(torch.tensor([path])).logits[0, -1]
            rows.append(logits.double().softmax(-1))
            path.append(int(logits.argmax()))
    return path[len(ids) :], rows


def steps_of(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line["event"] == "step"]


@pytest.mark.parametrize("cache_option", [(), ("--no-kv-cache",)], ids=["kv", "no kv"])
def test_the_same_as_plain_transformers(
    fp32: tuple[Place, list[Line]], cache_option: tuple[str, ...]
) -> None:
    words = ("run", "--dtype", "fp32", "--json", "--steps", str(STEPS), *cache_option, PROMPT)
    lines = fp32[0].json(*words)
    ids, rows = expected(IDS, STEPS)
    (prompt,) = [line for line in lines if line["event"] == "prompt"]
    assert [token["id"] for token in prompt["tokens"]] == IDS
    assert lines[-1]["ids"] == ids
    for step, row in zip(steps_of(lines), rows, strict=True):
        for candidate in step["candidates"]:
            assert candidate["prob"] == pytest.approx(float(row[candidate["id"]]), abs=1e-3)
        best = row.sort(descending=True)
        assert step["candidates"][0]["id"] == int(best.indices[0])
        assert step["margin"] == pytest.approx(float(best.values[0] - best.values[1]), abs=1e-3)
        entropy = float(-(row * row.clamp_min(1e-300).log2()).sum())
        assert step["entropy_bits"] == pytest.approx(entropy, abs=1e-2)
        assert step["position"] == len(IDS) + step["step"]
        naive = step["step"] == 0 or bool(cache_option)
        assert step["processed"] == (step["position"] if naive else 1)


def test_the_known_answer(bf16: Place) -> None:
    """As it comes, in bf16: the figures everybody can check, on the screen too."""
    lines = bf16.json("run", "--json", "--steps", "0", "--keep", PROMPT)
    (pending,) = [line for line in lines if line["event"] == "pending"]
    best = [(c["text"], c["prob"]) for c in pending["candidates"][:5]]
    assert [text for text, _ in best] == [" Ku", " `", " container", " pod", " default"]
    wanted = [0.225, 0.121, 0.036, 0.025, 0.020]
    assert [prob for _, prob in best] == pytest.approx(wanted, abs=0.004)
    with bf16.terminal() as screen:
        for part in ("step 0 pending", "␣Ku", f"{best[0][1] * 100:.1f} %"):
            screen.until(part)
        for step in (1, 2, 3):
            screen.press("s")
            screen.until(f"step {step} pending")
        screen.until("scheduled␣by␣the␣Kubernetes")
        screen.press("q")
        screen.finish()


def test_sampling_is_repeatable_and_follows_the_rule(bf16: Place) -> None:
    import hashlib

    seed = 12345
    words = ("--temperature", "0.9", "--top-k", "40", "--top-p", "0.95", "--seed", str(seed))
    lines = bf16.json("run", "--json", "--steps", "6", "--candidates", "60", *words, PROMPT)
    for step in steps_of(lines):
        raw = seed.to_bytes(8, "little") + bytes(8) + step["step"].to_bytes(8, "little")
        u = (int.from_bytes(hashlib.sha256(raw).digest()[:8], "big") >> 11) / 2**53
        assert step["chosen"]["draw"] == u
        total, picked, interval = 0.0, None, []
        for candidate in step["candidates"]:
            before, total = total, total + candidate["final_prob"]
            if picked is None and total > u:
                picked, interval = candidate["id"], [before, total]
        assert total == pytest.approx(1, abs=1e-5)
        assert step["chosen"]["id"] == picked
        assert step["chosen"]["interval"] == pytest.approx(interval, abs=1e-5)
    again = bf16.json("run", "--json", "--steps", "6", *words, PROMPT)
    assert again[-1]["ids"] == lines[-1]["ids"]


def test_chat(bf16: Place) -> None:
    lines = bf16.json("run", "--json", "--steps", "4", "--chat", "--system", "Be brief.", "Hi")
    (prompt,) = [line for line in lines if line["event"] == "prompt"]
    assert prompt["template"] is True
    assert "<|im_start|>system\nBe brief.<|im_end|>" in prompt["text"]
    assert prompt["tokens"][0]["special"] is True
    joined = b"".join(bytes.fromhex(token["bytes"]) for token in prompt["tokens"])
    assert joined.decode() == prompt["text"]


def test_scores_of_the_prompt_are_those_of_plain_transformers(
    fp32: tuple[Place, list[Line]],
) -> None:
    import torch

    place, lines = fp32
    (scored,) = [line for line in lines if line["event"] == "prompt_scored"]
    with torch.inference_mode():
        logits = plain(demo_model())(torch.tensor([IDS])).logits[0, :-1].double()
    targets = torch.tensor(IDS[1:])[:, None]
    logprobs = logits.log_softmax(-1).gather(1, targets)[:, 0].tolist()
    ranks = (1 + (logits > logits.gather(1, targets)).sum(1)).tolist()
    assert scored["logprobs"][0] is None
    assert scored["logprobs"][1:] == pytest.approx(logprobs, rel=1e-4, abs=1e-4)
    assert scored["ranks"] == [None, *ranks]
    said = place.run("run", "--dtype", "fp32", "--steps", "1", "--score-prompt", PROMPT)
    bits = -sum(logprobs) / math.log(2)
    assert f"score of the prompt: {bits:.1f} bits over {len(logprobs)} tokens, " in said.err
    (ready,) = [line for line in lines if line["event"] == "ready"]
    (file,) = ready["model"]["weights_files"]
    raw = (demo_model() / file["file"]).read_bytes()
    assert file["sha256"] == hashlib.sha256(raw).hexdigest()
    assert len(ready["model"]["weights_checksum"]) == 64


async def test_frozen_weights_are_a_checked_fact(
    bf16: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    bf16.run("daemon", "start")  # or it runs already
    for name, value in environment(bf16.root).items():
        monkeypatch.setenv(name, value)
    async with watching(paths_for("default"), run_to=3) as watch:
        await watch.standing(3)
        client = watch.client
        known = client.state.engine.weights
        model = client.state.engine.model
        assert known is not None
        assert model is not None
        assert (known.same, known.checksum) == (True, model.weights_checksum)
        await client.command(CheckWeights())
        await watch.until(lambda _: _checked_after(client.state, known))
        found = client.state.engine.weights
        assert found is not None
        assert (found.same, found.checksum) == (True, known.checksum)
        assert found.ms > 0.0
        columns = await watch.until(lambda c: c.status == "paused")
        await client.command(MeasureNaive(lengths=[4, 9]), watch.session)
        await watch.until(lambda c: len(c.naive) == 2)
        assert min(ms for _, ms in columns.naive) > 0.0
        await client.command(Close(), watch.session, watch.at())


def _checked_after(state: State, known: WeightsCheck) -> bool:
    found = state.engine.weights
    return found is not None and not found.running and found.wall_ns > known.wall_ns
