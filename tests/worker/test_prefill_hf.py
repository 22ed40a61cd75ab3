"""Chunks, scores and naive forwards of the `hf` backend against plain transformers."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine_daemon.protocol.commands import CHUNK
from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.values import Stops
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.tokens.builtin import BuiltinTokenizer
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.decode import DecodeSession
from engine_daemon.worker.engine import Engine
from engine_daemon.worker.outcomes import Append, Prediction
from engine_daemon.worker.prefill import Chunk
from engine_daemon.worker.probe import RowDistribution
from tests.worker.checkpoints import KINDS, VOCABULARY, quiet, save_tiny, tiny_model
from tests.worker.conftest import opening

pytestmark = pytest.mark.engine
LONG = [(7 * i * i + 3 * i + 5) % VOCABULARY for i in range(2 * CHUNK + 77)]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=KINDS)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tiny model of each kind: the engine over it, and transformers' own."""
    folder = save_tiny(tmp_path_factory.mktemp("tiny") / request.param, request.param)
    return engine_of(folder), tiny_model(request.param)


def engine_of(folder: Path) -> Engine:
    backend = HfBackend()
    options = EngineOptions(model=str(folder), device="cpu")
    return Engine(backend, backend.load(options, str(folder), quiet), table())


def table() -> PieceTable:
    return BuiltinTokenizer().table()


def plain(model: Any, ids: list[int]) -> torch.Tensor:
    """Logits of every position from one forward over everything."""
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([ids]), use_cache=False).logits[0].float()
    return logits


def row_of(prediction: Prediction) -> torch.Tensor:
    distribution = prediction.forward.distribution
    assert isinstance(distribution, RowDistribution)
    return distribution.row


def close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Within 1e-4 of the largest logit."""
    return bool((ours - theirs).abs().max() <= 1e-4 * theirs.abs().max())


def test_chunks_come_to_the_logits_of_one_pass(loaded: Any) -> None:
    engine, model = loaded
    session = DecodeSession(engine, opening(prompt_ids=pack_ints("I", LONG)))
    loop = session.steps()
    made = [next(loop) for _ in range(3)]
    assert [type(x) for x in made] == [Chunk, Chunk, Prediction]
    last = made[2]
    assert isinstance(last, Prediction)
    assert close(row_of(last), plain(model, LONG)[-1])
    assert (last.forward.processed, last.cache.tokens) == (len(LONG), len(LONG))
    assert last.work == engine.backend.work(len(LONG), len(LONG))
    append, after = next(loop), next(loop)
    assert isinstance(append, Append)
    assert isinstance(after, Prediction)
    assert close(row_of(after), plain(model, [*LONG, append.choice.id])[-1])


def test_scores_are_those_of_plain_transformers(loaded: Any) -> None:
    engine, model = loaded
    session = DecodeSession(
        engine, opening(prompt_ids=pack_ints("I", LONG), stops=Stops(score=True))
    )
    loop = session.steps()
    while not isinstance(made := next(loop), Prediction):
        pass
    logits = plain(model, LONG)
    assert close(row_of(made), logits[-1])
    assert session.scores is not None
    logprobs, ranks = session.scores.logprobs, session.scores.ranks
    assert logprobs[0] is ranks[0] is None
    assert len(logprobs) == len(ranks) == len(LONG)
    wanted = torch.log_softmax(logits[:-1], -1).gather(1, torch.tensor(LONG[1:])[:, None])[:, 0]
    assert (torch.tensor(logprobs[1:]) - wanted).abs().max() < 1e-3
    own = logits[:-1].gather(1, torch.tensor(LONG[1:])[:, None])
    spread = 1e-4 * logits.abs().max()
    fewest = 1 + (logits[:-1] > own + spread).sum(1)
    most = 1 + (logits[:-1] > own - spread).sum(1)
    found = torch.tensor(ranks[1:])
    assert bool(((fewest <= found) & (found <= most)).all())
    assert float((found == 1 + (logits[:-1] > own).sum(1)).float().mean()) > 0.99


def test_scores_without_a_cache_are_the_same(loaded: Any) -> None:
    engine, model = loaded
    ids = LONG[:70]
    order = opening(prompt_ids=pack_ints("I", ids), stops=Stops(score=True), cache_mode="none")
    session = DecodeSession(engine, order)
    assert isinstance(next(session.steps()), Prediction)
    assert session.scores is not None
    wanted = torch.log_softmax(plain(model, ids)[:-1], -1)
    wanted = wanted.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    assert (torch.tensor(session.scores.logprobs[1:]) - wanted).abs().max() < 1e-3


def test_without_a_cache_every_step_reads_everything_and_says_so(loaded: Any) -> None:
    engine, model = loaded
    reads: list[int] = []
    hook = engine.backend._model.get_input_embeddings().register_forward_hook(
        lambda _module, inputs, _output: reads.append(inputs[0].shape[1])
    )
    try:
        order = opening(prompt_ids=pack_ints("I", LONG[:30]), cache_mode="none")
        session = DecodeSession(engine, order)
        loop = session.steps()
        made = [next(loop) for _ in range(9)]
    finally:
        hook.remove()
    predictions = [x for x in made if isinstance(x, Prediction)]
    assert reads == [30, 31, 32, 33, 34]
    assert [x.forward.processed for x in predictions] == reads
    assert [x.position for x in predictions] == reads
    for prediction in predictions:
        cache = prediction.cache
        assert (cache.mode, cache.tokens, cache.growing_bytes, cache.fixed_bytes) == (
            "none",
            0,
            0,
            0,
        )
        assert cache.allocated_bytes == 0
        assert close(row_of(prediction), plain(model, session.path[: prediction.position])[-1])


def test_a_measurement_is_one_whole_forward_and_leaves_the_session_alone(loaded: Any) -> None:
    engine, model = loaded
    session = DecodeSession(engine, opening(prompt_ids=pack_ints("I", LONG[:40])))
    loop = session.steps()
    first = next(loop)
    assert isinstance(first, Prediction)
    reads: list[int] = []
    hook = engine.backend._model.get_input_embeddings().register_forward_hook(
        lambda _module, inputs, _output: reads.append(inputs[0].shape[1])
    )
    assert all(session.measure_naive(length) > 0.0 for length in (1, 17, 40))
    hook.remove()
    assert reads == [1, 17, 40]
    append, after = next(loop), next(loop)
    assert isinstance(append, Append)
    assert isinstance(after, Prediction)
    assert after.forward.processed == 1
    assert close(row_of(after), plain(model, [*LONG[:40], append.choice.id])[-1])


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_prompt_of_32k_on_a_hybrid_needs_no_quadratic_memory(tmp_path: Path) -> None:
    """Attention scores of one head alone would be 2 GB in bf16 if they were ever held at once."""
    made = subprocess.run(
        [sys.executable, "-c", "from tests.worker import test_prefill_hf as t; t.read_32k()"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(made.stdout)
    assert found["positions"] == 32_768
    assert found["chunks"] == 63
    assert found["grown_bytes"] < 500_000_000, found
    held = found["cache_bytes"]
    assert held == 32_768 * 2 * 3 * 64 * 2


def memory(field: str) -> int:
    """Bytes of this process, from the system's own account."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


def read_32k() -> None:
    """In a process of its own: a hybrid of the demo model's width, and what reading 32k costs."""
    import transformers as t

    torch.set_num_threads(2)
    torch.manual_seed(1)
    config = t.Qwen3_5TextConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1536,
        num_attention_heads=9,
        num_key_value_heads=3,
        num_hidden_layers=4,
        head_dim=64,
        max_position_embeddings=65_536,
        linear_num_key_heads=3,
        linear_num_value_heads=6,
        linear_key_head_dim=64,
        linear_value_head_dim=64,
        dtype=torch.bfloat16,
    )
    folder = Path.cwd()
    from tests.worker.checkpoints import save_tokenizer

    t.Qwen3_5ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    save_tokenizer(folder)
    engine = engine_of(folder)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = memory("VmRSS")
    ids = [i * 7919 % 49_152 for i in range(32_768)]
    session = DecodeSession(engine, opening(prompt_ids=pack_ints("I", ids)))
    made = []
    loop = session.steps()
    while not isinstance(prediction := next(loop), Prediction):
        made.append(prediction)
    after = memory("VmHWM")
    print(
        json.dumps(
            {
                "positions": prediction.position,
                "chunks": len(made),
                "grown_bytes": after - before,
                "cache_bytes": prediction.cache.growing_bytes,
                "seconds": prediction.forward.ms / 1000,
            }
        )
    )
