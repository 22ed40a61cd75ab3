"""The transformers backend against transformers itself."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.values import Sampler
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.backends import locate
from engine_daemon.worker.backends.base import Loaded
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.probe import RowDistribution
from tests.worker.checkpoints import (
    KINDS,
    VOCABULARY,
    demo_model,
    edit_config,
    quiet,
    save_tiny,
    tiny_model,
)

pytestmark = pytest.mark.engine
GREEDY = Sampler()
PROMPT = [(7 * i + 3) % VOCABULARY for i in range(21)]
KNOWN = [59, 23385, 37491, 27781, 359, 13831, 411, 260]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def load(folder: Path, dtype: Any = "fp32", **options: Any) -> tuple[HfBackend, Loaded]:
    backend = HfBackend()
    asked = EngineOptions(model=str(folder), device="cpu", dtype=dtype, **options)
    assert locate(asked, quiet) == str(folder.resolve())
    return backend, backend.load(asked, str(folder), quiet)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("tiny")
    return {kind: save_tiny(base / kind, kind) for kind in KINDS}


def logits(backend: HfBackend, ids: list[int], cache: Any) -> torch.Tensor:
    distribution = backend.forward(ids, cache).distribution
    assert isinstance(distribution, RowDistribution)
    return distribution.row


def fresh(model: Any, ids: list[int]) -> torch.Tensor:
    """The last row of a whole forward without any cache."""
    with torch.inference_mode():
        row: torch.Tensor = model(torch.tensor([ids]), use_cache=False).logits[0, -1].float()
    return row


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.parametrize("kind", KINDS)
def test_incremental_equals_fresh(folders: dict[str, Path], kind: str) -> None:
    """Prompt in two chunks, then one id at a time past the sliding window and a doubling."""
    backend, _ = load(folders[kind])
    model = tiny_model(kind)
    cache = backend.new_cache("kv")
    ids = list(PROMPT)
    backend.forward(ids[:9], cache)
    row = logits(backend, ids[9:], cache)
    for step in range(24):
        assert difference(row, fresh(model, ids)) < 1e-4
        ids.append((5 * step + 1) % VOCABULARY)
        row = logits(backend, ids[-1:], cache)
    assert difference(row, fresh(model, ids)) < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_naive_equals_cached(folders: dict[str, Path], kind: str) -> None:
    backend, _ = load(folders[kind])
    cached, naive = backend.new_cache("kv"), backend.new_cache("none")
    for ids in (PROMPT, [4], [9], [16]):
        one, other = backend.forward(ids, cached), backend.forward(ids, naive)
        assert isinstance(one.distribution, RowDistribution)
        assert isinstance(other.distribution, RowDistribution)
        assert difference(one.distribution.row, other.distribution.row) < 1e-4
        assert one.processed == len(ids)
        assert other.processed == naive.tokens
    report = naive.report(100)
    assert (report.mode, report.tokens, report.growing_bytes) == ("none", 0, 0)
    assert (report.fixed_bytes, report.allocated_bytes, report.limit_tokens) == (0, 0, 100)


def test_cache_report_dense(folders: dict[str, Path]) -> None:
    backend, _ = load(folders["llama"])
    cache = backend.new_cache("kv")
    backend.forward(PROMPT, cache)
    report = cache.report(512)
    position = 3 * 2 * 2 * 16 * 4  # layers, keys and values, heads, head size, fp32
    assert report.tokens == len(PROMPT)
    assert report.growing_bytes == position * len(PROMPT)
    assert report.fixed_bytes == 0
    assert report.capacity_tokens == 256
    assert report.allocated_bytes == position * 256
    cache.free()
    assert cache.report(None).allocated_bytes == 0


def test_cache_report_hybrid(folders: dict[str, Path]) -> None:
    backend, _ = load(folders["qwen3_5"])
    cache = backend.new_cache("kv")
    backend.forward(PROMPT, cache)
    first = cache.report(None)
    backend.forward([1, 2, 3], cache)
    second = cache.report(None)
    position = 2 * 2 * 32 * 4  # one attention layer
    convolution = 3 * 4 * (2 * 2 * 16 + 4 * 16) * 4
    recurrent = 3 * 4 * 16 * 16 * 4
    assert first.growing_bytes == position * len(PROMPT)
    assert second.growing_bytes == position * (len(PROMPT) + 3)
    assert first.fixed_bytes == second.fixed_bytes == convolution + recurrent


def test_cache_never_outgrows_the_limit(folders: dict[str, Path]) -> None:
    backend, _ = load(folders["llama"], max_context=300)
    cache = backend.new_cache("kv")
    backend.forward([1] * 257, cache)
    assert cache.report(None).capacity_tokens == 300
    with pytest.raises(InspectError) as caught:
        backend.forward([1] * 44, cache)
    assert caught.value.code == "context_full"
    backend.forward([1] * 43, cache)
    assert cache.report(None).capacity_tokens == cache.tokens == 300


@pytest.mark.parametrize("kind", ["llama", "qwen3_5"])
def test_a_failed_forward_leaves_the_cache_usable_or_says_so(
    folders: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, _ = load(folders[kind])
    cache = backend.new_cache("kv")
    backend.forward(PROMPT, cache)
    expected = logits(backend, [*PROMPT, 5, 6], backend.new_cache("kv"))
    last = backend._model.model.layers[-1]

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 1 byte")

    with monkeypatch.context() as patch:
        patch.setattr(last.mlp, "forward", fail)
        with pytest.raises(InspectError) as caught:
            backend.forward([5, 6], cache)
    assert caught.value.code == "no_memory"
    if kind == "llama":
        assert difference(logits(backend, [5, 6], cache), expected) < 1e-5
    else:
        with pytest.raises(InspectError, match="lost"):
            backend.forward([5], cache)


@pytest.mark.skipif(not hasattr(torch, "AcceleratorError"), reason="an older torch")
@pytest.mark.parametrize(
    ("said", "ends"),
    [("CUDA error: device-side assert triggered", True), ("CUDA error: out of memory", False)],
)
def test_an_error_of_the_device_itself_ends_the_engine(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, said: str, ends: bool
) -> None:
    """Nothing runs on it any more; a new process can begin anew."""
    backend, _ = load(folders["llama"])

    def fail(*_: object, **__: object) -> None:
        raise torch.AcceleratorError(said)

    monkeypatch.setattr(backend, "_logits", fail)
    with pytest.raises(SystemExit if ends else InspectError, match=r"device is lost|more memory"):
        backend.forward(PROMPT, backend.new_cache("kv"))


def test_what_is_loaded(folders: dict[str, Path]) -> None:
    backend, loaded = load(folders["qwen3_5"])
    model = loaded.model
    assert model.layer_kinds == {"linear_attention": 3, "full_attention": 1}
    assert (model.architecture, model.layers, model.ranks) == ("Qwen3_5ForCausalLM", 4, 1)
    assert (model.vocabulary, model.context_length, model.dtype) == (VOCABULARY, 2048, "fp32")
    assert model.parameters == sum(x.numel() for x in tiny_model("qwen3_5").parameters())
    assert model.weights_bytes == 4 * model.parameters
    assert [x.file for x in model.weights_files] == ["model.safetensors"]
    assert loaded.eos_ids == [2]
    assert len(loaded.weights_id) == 64
    backend.close()


def test_sharded_and_bf16(tmp_path: Path, folders: dict[str, Path]) -> None:
    folder = save_tiny(tmp_path / "sharded", max_shard_size="100KB")
    backend, loaded = load(folder, "auto")
    assert len(loaded.model.weights_files) > 1
    assert loaded.model.dtype == "fp32"
    assert loaded.weights_id != load(folders["llama"])[1].weights_id
    half, in_half = load(folder, "bf16")
    assert (in_half.model.dtype, in_half.weights_id) == ("bf16", loaded.weights_id)
    distribution = half.forward(PROMPT, half.new_cache("kv")).distribution
    assert isinstance(distribution, RowDistribution)
    assert distribution.logits.dtype is torch.bfloat16
    assert difference(distribution.row, logits(backend, PROMPT, backend.new_cache("kv"))) < 0.1


def test_progress_is_in_bytes(folders: dict[str, Path]) -> None:
    seen: list[tuple[str, int, int]] = []
    options = EngineOptions(model=str(folders["llama"]), device="cpu")
    HfBackend().load(options, str(folders["llama"]), lambda *x: seen.append(x))
    loading = [(done, total) for stage, done, total in seen if stage == "load"]
    assert len(loading) > 3
    assert loading == sorted(loading)
    size = (folders["llama"] / "model.safetensors").stat().st_size
    assert loading[-1] == (size, size)
    assert seen[-1][0] == "warm up"


@pytest.mark.parametrize("ids", [[], [-1], [VOCABULARY], [1, 2, 10**9]])
def test_impossible_ids(folders: dict[str, Path], ids: list[int]) -> None:
    backend, _ = load(folders["llama"])
    with pytest.raises(InspectError) as caught:
        backend.forward(ids, backend.new_cache("kv"))
    assert caught.value.code == "bad_arg"


def test_nan_is_an_engine_error(folders: dict[str, Path]) -> None:
    backend, _ = load(folders["llama"])
    with torch.no_grad():
        backend._model.model.norm.weight.fill_(math.nan)
    distribution = backend.forward(PROMPT, backend.new_cache("kv")).distribution
    with pytest.raises(InspectError) as caught:
        distribution.evaluate(GREEDY, PROMPT)
    assert (caught.value.code, caught.value.exit_code) == ("engine", Exit.ENGINE)


def test_work_is_the_formula(folders: dict[str, Path]) -> None:
    backend, _ = load(folders["llama"])
    matrix = 3 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96)
    head = 64 * VOCABULARY
    one = backend.work(1, 10)
    assert one.flops == 2 * matrix + 2 * head + 4 * 3 * 64 * 10
    assert one.bytes_moved == 4 * (matrix + head) + 3 * 2 * 32 * 4 * 11
    whole = backend.work(10, 10)
    assert whole.flops == 2 * matrix * 10 + 2 * head + 4 * 3 * 64 * 55


def test_work_stops_growing_in_a_window(folders: dict[str, Path]) -> None:
    backend, _ = load(folders["gemma3"])
    full, window = 4 * 1 * 4 * 16, 4 * 2 * 4 * 16
    assert backend.work(1, 6).flops - backend.work(1, 5).flops == full + window
    assert backend.work(1, 60).flops - backend.work(1, 50).flops == 10 * full
    position = (
        2 * 2 * 16 * 4
    )  # keys and values, heads, head size, fp32; one full layer, two windows
    grown = [backend.work(1, n).bytes_moved for n in (1, 2, 8, 9, 60)]
    assert [x - grown[0] for x in grown[1:]] == [
        3 * position,
        3 * 7 * position,
        (3 * 7 + 1) * position,
        (3 * 7 + 52) * position,
    ]
    steps = sum(backend.work(1, i).flops for i in range(4, 13))
    rest = backend.work(1, 0).flops  # what a forward costs besides attention
    together = backend.work(9, 12).flops
    head = 2 * 64 * VOCABULARY
    assert steps - 9 * rest == together - 9 * (rest - head) - head


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "no_such_thing"}, "no_such_thing"),
        ({"architectures": ["LlamaForTokenClassification"]}, "not supported"),
        ({"num_hidden_layers": 5}, "lacks"),
        ({"quantization_config": {"quant_method": "zzz"}}, "quantised by 'zzz'"),
        ({"max_position_embeddings": -5}, "says max_position_embeddings = -5"),
        ({"hidden_size": "64"}, 'says hidden_size = "64"'),
        ({"num_hidden_layers": 1}, "holds . layers, its config.json says 1"),
        ({"intermediate_size": 128}, "shape|cannot be loaded"),
    ],
)
def test_what_cannot_be_loaded(
    tmp_path: Path, folders: dict[str, Path], changes: dict[str, object], message: str
) -> None:
    folder = save_tiny(tmp_path / "m")
    edit_config(folder, **changes)
    with pytest.raises(InspectError, match=message) as caught:
        load(folder)
    assert caught.value.exit_code == Exit.MODEL
    assert len(caught.value.lines().splitlines()) <= 2
    assert not re.search("above|below|doctor", caught.value.lines())


@pytest.mark.parametrize("device", ["tpu", "cuda:x", "cpu:1", "cuda:0,1", "cuda:99"])
def test_impossible_devices(folders: dict[str, Path], device: str) -> None:
    options = EngineOptions(model=str(folders["llama"]), device=device)
    with pytest.raises(InspectError) as caught:
        HfBackend().load(options, str(folders["llama"]), quiet)
    assert caught.value.exit_code == Exit.MODEL


# The demo model ---------------------------------------------------------------------------------


@pytest.mark.model
@pytest.mark.parametrize(
    ("dtype", "percents"),
    [("bf16", [22.5, 12.1, 3.6, 2.5, 2.0]), ("fp32", [23.4, 12.4, 3.7, 2.5, 2.2])],
)
def test_known_answer(dtype: str, percents: list[float]) -> None:
    backend, loaded = load(demo_model(), dtype)
    assert loaded.model.name == "smollm2-135m"
    forward = backend.forward(KNOWN, backend.new_cache("kv"))
    report = forward.distribution.evaluate(GREEDY, KNOWN).report(5)
    shares = [round(100 * math.exp(x - report.logsumexp), 1) for x in report.logits]
    assert shares == percents
    assert report.ids[0] == 17012


@pytest.mark.model
def test_demo_decode_equals_generate() -> None:
    """32 greedy steps: generate's ids, and each distribution a fresh forward's within 1e-3."""
    from transformers import AutoModelForCausalLM

    folder = demo_model()
    backend, _ = load(folder)
    plain = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32).eval()
    expected = plain.generate(
        torch.tensor([KNOWN]), max_new_tokens=32, min_new_tokens=32, do_sample=False
    )[0].tolist()
    with torch.inference_mode():
        rows = plain(torch.tensor([expected]), use_cache=False).logits[0].softmax(-1)
    cache = backend.new_cache("kv")
    ids = list(KNOWN)
    new = ids
    for _step in range(32):
        distribution = backend.forward(new, cache).distribution
        assert isinstance(distribution, RowDistribution)
        ours = distribution.row.softmax(-1)
        assert float((ours - rows[len(ids) - 1]).abs().max()) < 1e-3
        new = [distribution.evaluate(GREEDY, ids).pick(0.0).id]
        ids += new
    assert ids == expected


@pytest.mark.model
def test_ties_of_the_demo_model_are_ordered_by_id_and_a_cut_one_is_told() -> None:
    """bf16 logits are equal often: about every other step has a tie at the 20th place."""
    backend, _ = load(demo_model(), "bf16")
    cache, ids, cut = backend.new_cache("kv"), list(KNOWN), []
    new = ids
    for _step in range(16):
        distribution = backend.forward(new, cache).distribution
        assert isinstance(distribution, RowDistribution)
        row = distribution.row.tolist()
        order = sorted(range(len(row)), key=lambda i: (-row[i], i))
        evaluation = distribution.evaluate(GREEDY, ids)
        report, choice = evaluation.report(20), evaluation.pick(0.0)
        assert report.ids == order[:20]
        assert report.ties_cut == (row[order[19]] == row[order[20]])
        assert (choice.id, choice.logit) == (order[0], row[order[0]])
        cut.append(report.ties_cut)
        new = [choice.id]
        ids = ids + new
    assert set(cut) == {False, True}
