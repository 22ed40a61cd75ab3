"""The direct step against transformers' own forward, in every family it takes and no other."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import transformers
from torch import Tensor, nn

from engine_daemon.errors import InspectError
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.caches import HfCache
from engine_daemon.worker.fast import attention, direct, engine, streamed
from engine_daemon.worker.fast.engine import direct_step, speed_up
from engine_daemon.worker.fast.family import Unknown, parts_of
from engine_daemon.worker.probe import RowDistribution
from tests.worker.checkpoints import VOCABULARY, demo_model, quiet, save_tokenizer, tiny_model

pytestmark = pytest.mark.engine

Dtype = Literal["fp32", "bf16"]
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
TAKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama, tied": ("Llama", {"tie_word_embeddings": True}),
    "llama, one head a group": ("Llama", {"num_key_value_heads": 4}),
    "llama, one group": ("Llama", {"num_key_value_heads": 1}),
    "llama, biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, stretched": ("Llama", {"rope_parameters": LLAMA3}),
    "llama, yarn": ("Llama", {"rope_parameters": YARN}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3, tied, biases": ("Qwen3", {"tie_word_embeddings": True, "attention_bias": True}),
}
NOT_TAKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral": ("Mistral", {"sliding_window": 8}),
    "qwen3": ("Qwen3", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    "llama, gelu": ("Llama", {"hidden_act": "gelu"}),
    "llama, dynamic": (
        "Llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}},
    ),
    "granite": ("Granite", {"attention_multiplier": 0.5}),
    "olmo2": ("Olmo2", {}),
    "mixtral": ("Mixtral", {"num_local_experts": 2}),
    "phi3": ("Phi3", {"pad_token_id": 0}),
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make(prefix: str, changes: dict[str, Any]) -> Any:
    """A model of random weights, fp32; biases and norms are not what they start as, either."""
    torch.manual_seed(11)
    config = getattr(transformers, f"{prefix}Config")(**SHAPE | changes)
    made = getattr(transformers, f"{prefix}ForCausalLM")(config)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.15)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return made.eval()


def save(folder: Path, kind: str) -> Path:
    make(*TAKEN[kind]).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def load(folder: Path, dtype: Dtype, *, plain: bool = False) -> HfBackend:
    backend = HfBackend()
    asked = EngineOptions(model=str(folder), device="cpu", dtype=dtype, plain_engine=plain)
    info = backend.load(asked, str(folder), quiet).model
    way = "direct+streamed" if dtype == "bf16" and streamed.supported() else "direct"
    assert info.engine_path.endswith(way) is not plain
    return backend


def row(backend: HfBackend, ids: list[int], cache: HfCache) -> Tensor:
    distribution = backend.forward(ids, cache).distribution
    assert isinstance(distribution, RowDistribution)
    return distribution.row.clone()


def fresh(model: Any, ids: list[int]) -> Tensor:
    """The last logits of transformers' own forward over everything."""
    with torch.inference_mode():
        logits: Tensor = model(torch.tensor([ids]), use_cache=False).logits[0, -1].float()
        return logits


def same(ours: Tensor, theirs: Tensor, dtype: Dtype) -> None:
    """The design's tolerances."""
    if dtype == "fp32":
        assert torch.allclose(ours, theirs, atol=1e-4 * float(theirs.abs().max()))
        return
    one, other = torch.softmax(ours, -1), torch.softmax(theirs, -1)
    assert float((one - other).abs().max()) <= 0.06
    first, second = torch.topk(other, 2).values.tolist()
    assert first - second <= 0.06 or int(one.argmax()) == int(other.argmax())


def token(step: int) -> int:
    return (13 * step * step + 5 * step + 3) % VOCABULARY


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", TAKEN)
def test_steps_are_those_of_a_fresh_forward(tmp_path: Path, kind: str, dtype: Dtype) -> None:
    """After a prompt in pieces, past a growth, after going back and on another path."""
    backend = load(save(tmp_path / "model", kind), dtype)
    plain = make(*TAKEN[kind])
    plain = plain.bfloat16() if dtype == "bf16" else plain
    cache = backend.new_cache("kv")
    ids = [token(i) for i in range(250)]
    for piece in (ids[:100], ids[100:200], ids[200:]):
        row(backend, piece, cache)
    for step in range(250, 262):
        ids.append(token(step))
        ours = row(backend, ids[-1:], cache)
        if step % 3 == 0 or step > 255:
            same(ours, fresh(plain, ids), dtype)
    del ids[100:]
    ids += [9, 8, 7]
    held = cache.go_back(ids[:-1]).position
    assert held == 100
    for place in range(held, len(ids)):
        ours = row(backend, ids[place : place + 1], cache)
    same(ours, fresh(plain, ids), dtype)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_long_sequences(tmp_path: Path, dtype: Dtype) -> None:
    """Attention over whole buffers, and over what a longer path left in them."""
    backend = load(save(tmp_path / "model", "llama"), dtype)
    plain = make(*TAKEN["llama"])
    plain = plain.bfloat16() if dtype == "bf16" else plain
    cache = backend.new_cache("kv")
    ids = [token(i) for i in range(1279)]
    row(backend, ids, cache)
    for step in range(3):
        ids.append(token(step))
        same(row(backend, ids[-1:], cache), fresh(plain, ids), dtype)
    ids = [*ids[:1200], 5, 6]
    assert cache.go_back(ids[:-1]).position == 1200
    row(backend, [5], cache)
    same(row(backend, [6], cache), fresh(plain, ids), dtype)


@pytest.mark.parametrize("kind", TAKEN)
def test_which_models_are_taken(kind: str) -> None:
    assert direct_step(make(*TAKEN[kind]), 0, None)[0] is not None


@pytest.mark.parametrize("kind", NOT_TAKEN)
def test_which_models_are_not_taken(kind: str) -> None:
    model = make(*NOT_TAKEN[kind])
    with pytest.raises(Unknown):
        parts_of(model)
    assert direct_step(model, 0, None) == (None, [])


@pytest.mark.parametrize("kind", ["gemma3", "qwen3_5"])
def test_windows_and_hybrids_are_not_taken(kind: str) -> None:
    assert direct_step(tiny_model(kind), 0, None) == (None, [])


class Watched(nn.Linear):
    """A layer of another class."""


def _hook(model: Any) -> None:
    model.model.layers[1].mlp.register_forward_hook(lambda *_: None)


def _own_forward(model: Any) -> None:
    layer = model.model.layers[1]
    layer.forward = layer.forward


def _subclass(model: Any) -> None:
    model.model.layers[0].self_attn.o_proj.__class__ = Watched


def _extra_child(model: Any) -> None:
    model.model.layers[0].self_attn.gate = nn.Linear(4, 4).eval()


def _extra_parameter(model: Any) -> None:
    model.model.layers[0].self_attn.sinks = nn.Parameter(torch.zeros(4))


def _two_dtypes(model: Any) -> None:
    model.model.norm.bfloat16()


def _training(model: Any) -> None:
    model.model.layers[0].train()


def _fewer_layers(model: Any) -> None:
    model.config.num_hidden_layers = 2


def _window(model: Any) -> None:
    model.model.layers[0].self_attn.sliding_window = 16


CHANGES = [
    _hook,
    _own_forward,
    _subclass,
    _extra_child,
    _extra_parameter,
    _two_dtypes,
    _training,
    _fewer_layers,
    _window,
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_known_is_declined(change: Callable[[Any], None]) -> None:
    model = make(*TAKEN["llama"])
    assert parts_of(model).layers
    change(model)
    with pytest.raises(Unknown):
        parts_of(model)


def test_other_numbers_are_declined(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A forward that computes something else, as another release of the library might."""
    model = make(*TAKEN["llama"])
    theirs = type(model.model.layers[0].mlp).forward
    mlp = type(model.model.layers[0].mlp)
    monkeypatch.setattr(mlp, "forward", lambda self, x: 1.5 * theirs(self, x))
    assert direct_step(model, 0, None) == (None, [])
    assert "differs" in caplog.text


def test_a_plain_engine_has_no_direct_step(tmp_path: Path) -> None:
    backend = load(save(tmp_path / "model", "llama"), "fp32", plain=True)
    assert backend._direct is None


def test_a_failed_step_leaves_the_cache_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = load(save(tmp_path / "model", "llama"), "fp32")
    cache, other = backend.new_cache("kv"), backend.new_cache("kv")
    for held in (cache, other):
        row(backend, [5, 6, 7], held)
    calls = iter(range(10))
    whole = attention.over_buffers

    def fails(*given: Any) -> Tensor:
        if next(calls) == 1:
            raise RuntimeError("can't allocate memory")
        return whole(*given)

    with monkeypatch.context() as patch:
        patch.setattr(direct, "over_buffers", fails)
        with pytest.raises(InspectError):
            row(backend, [8], cache)
    assert torch.equal(row(backend, [8], cache), row(backend, [8], other))


def test_the_demo_model_over_real_text() -> None:
    """Long enough for attention over whole buffers; the same tokens where the plain model is
    sure."""
    backends = [HfBackend(), HfBackend()]
    for backend, plain in zip(backends, (False, True), strict=True):
        asked = EngineOptions(device="cpu", dtype="bf16", plain_engine=plain)
        backend.load(asked, str(demo_model()), quiet)
    assert backends[0]._direct is not None
    tokenizer = transformers.AutoTokenizer.from_pretrained(demo_model())
    text = Path(engine.__file__).read_text() + Path(__file__).read_text()
    ids = tokenizer(text)["input_ids"][:1300]
    caches = [backend.new_cache("kv") for backend in backends]
    for backend, cache in zip(backends, caches, strict=True):
        row(backend, ids[:1290], cache)
    for token_id in ids[1290:]:
        ours, theirs = (
            row(backend, [token_id], cache) for backend, cache in zip(backends, caches, strict=True)
        )
        same(ours, theirs, "bf16")


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_products_are_the_layers_side_by_side(dtype: Dtype) -> None:
    """Packed and joined, or plain."""
    model = make(*TAKEN["qwen2"])
    model = model.bfloat16() if dtype == "bf16" else model
    speed_up(model, None)
    parts = parts_of(model)
    given = torch.randn(1, 64).bfloat16().float()
    attention = model.model.layers[1].self_attn
    expected = [layer(given.to(model.dtype)) for layer in list(attention.children())[:3]]
    assert torch.equal(parts.layers[1].qkv.compute(given), torch.cat(expected, -1).float())


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("size", [1e-6, 0.05, 1.0, 3e4, 1e9])
def test_streamed_weights_are_the_same_numbers(size: float, added: bool) -> None:
    torch.manual_seed(5)
    weights = [(torch.randn(rows, 48) * size).bfloat16() for rows in (7, 64)]
    biases = [torch.randn(rows).bfloat16() for rows in (7, 64)]
    made = streamed.Streamed(lambda: weights, biases, scaled_bias=added)
    made.pack()
    assert torch.allclose(made.weights(), torch.cat(weights).float(), rtol=0, atol=size * 1e-10)
    given = torch.randn(1, 48)
    whole, bias = torch.cat(weights).double(), torch.cat(biases).double()
    expected = nn.functional.linear(given.double(), whole, bias)
    ours = made.compute(given) * made.shrink if added else made.compute(given * made.shrink)
    assert torch.allclose(ours.double(), expected, rtol=1e-5, atol=1e-5 * max(1.0, size))


@pytest.mark.skipif(not streamed.supported(), reason="no such products on this CPU")
def test_the_checksum_sees_a_copy_that_differs(tmp_path: Path) -> None:
    backend = load(save(tmp_path / "model", "qwen2"), "bf16")
    whole = backend.sum_weights(quiet)
    assert whole == backend._checksum
    assert backend._direct is not None
    copy = backend._direct._parts.streamed[3]
    weights = copy.weights()
    weights[5, 7] += 0.5
    other = streamed.Streamed(lambda: [weights], [None], scaled_bias=False)
    other.pack()
    copy._packed = other._packed
    assert backend.sum_weights(quiet) != whole


def test_streaming_is_for_what_can_be_afforded() -> None:
    most = streamed.MOST_BYTES_A_THREAD * torch.get_num_threads()
    assert streamed.affordable(most, None)
    assert not streamed.affordable(most + 1, None)
    assert not streamed.affordable(1000, 3999)
    model = make(*TAKEN["llama"]).bfloat16()
    assert direct_step(model, 1000, 3999)[1] == ["direct"]
