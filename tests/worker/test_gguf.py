"""GGUF files as models: dequantised as their format says, and that is told."""

from pathlib import Path

import gguf.quants
import numpy as np
import pytest
import torch

from engine_daemon.errors import InspectError
from engine_daemon.model_store import cached_models
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker import fitting
from engine_daemon.worker.backends import locate
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.convert import converted_note
from engine_daemon.worker.fast.linear import named_weights
from engine_daemon.worker.host_memory import Present
from engine_daemon.worker.probe import RowDistribution
from tests.worker.checkpoints import quiet, save_tiny_gguf

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_gguf(tmp_path_factory.mktemp("gguf") / "Tiny.F32.gguf")


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
def test_a_quantised_gguf_is_dequantised_as_its_format_says_and_that_is_told(
    tmp_path: Path, kind: str
) -> None:
    path = save_tiny_gguf(tmp_path / f"Tiny.{kind}.gguf", kind)
    options = EngineOptions(model=str(path), cache_dir=str(tmp_path / "cache"), device="cpu")
    backend = HfBackend()
    loaded = backend.load(options, locate(options, quiet), quiet)
    assert loaded.notes == [
        f"Tiny.{kind}.gguf is a GGUF: its weights ({kind}) are dequantised to bf16"
    ]
    assert loaded.model.dtype == "bf16"
    ours = dict(named_weights(backend._model))
    tensors = {it.name: it for it in gguf.GGUFReader(path).tensors}
    for name, theirs in (
        ("model.embed_tokens", "token_embd"),
        ("model.layers.1.mlp.down_proj", "blk.1.ffn_down"),
        ("model.layers.0.self_attn.v_proj", "blk.0.attn_v"),
        ("model.layers.0.input_layernorm", "blk.0.attn_norm"),
    ):
        found = tensors[f"{theirs}.weight"]
        plain = torch.tensor(gguf.quants.dequantize(found.data, found.tensor_type))
        assert torch.equal(ours[f"{name}.weight"], plain.to(torch.bfloat16)), name


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_logits_of_a_gguf_are_those_worked_out_from_its_tensors(tmp_path: Path, kind: str) -> None:
    """The order of the rows of queries and keys is another in this format than in safetensors."""
    path = save_tiny_gguf(tmp_path / "Tiny.gguf", kind)
    options = EngineOptions(
        model=str(path), cache_dir=str(tmp_path / "cache"), device="cpu", dtype="fp32"
    )
    backend = HfBackend()
    backend.load(options, locate(options, quiet), quiet)
    cache, ids = backend.new_cache("kv"), [5, 200, 7, 31, 90, 5, 12]
    backend.forward(ids[:4], cache)
    for count in (5, 6, 7):
        distribution = backend.forward(ids[count - 1 : count], cache).distribution
        assert isinstance(distribution, RowDistribution)
        expected = worked_out(path, ids[:count])
        error = np.abs(distribution.row.numpy() - expected).max()
        assert error <= 1e-4 * np.abs(expected).max()


def worked_out(path: Path, ids: list[int]) -> np.ndarray:
    """The last row of logits, in float64: a llama as the format defines it, its weights in bf16,
    with neighbouring numbers of a head turned together."""
    reader = gguf.GGUFReader(path)
    weights = {
        it.name: torch.tensor(gguf.quants.dequantize(it.data, it.tensor_type)).bfloat16().double()
        for it in reader.tensors
    }
    heads = int(reader.fields["llama.attention.head_count"].contents())
    x = weights["token_embd.weight"][ids]
    size = x.shape[1] // heads
    angles = torch.arange(len(ids)).double()[:, None] / 10000 ** (torch.arange(0, size, 2) / size)
    turn = torch.polar(torch.ones_like(angles), angles)[:, None]

    def normed(x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weights[name]

    def turned(x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.reshape(len(ids), heads, size // 2, 2))
        return torch.view_as_real(pairs * turn).reshape(len(ids), heads, size)

    for layer in range(2):
        part = f"blk.{layer}."
        h = normed(x, part + "attn_norm.weight")
        q, k, v = (h @ weights[f"{part}attn_{it}.weight"].T for it in "qkv")
        scores = torch.einsum("ihd,jhd->hij", turned(q), turned(k)) / size**0.5
        later = torch.ones(len(ids), len(ids)).triu(1).bool()
        shares = scores.masked_fill(later, -torch.inf).softmax(-1)
        seen = torch.einsum("hij,jhd->ihd", shares, v.reshape(len(ids), heads, size))
        x = x + seen.reshape(len(ids), -1) @ weights[part + "attn_output.weight"].T
        h = normed(x, part + "ffn_norm.weight")
        gate, up = (h @ weights[f"{part}ffn_{it}.weight"].T for it in ("gate", "up"))
        x = x + (torch.nn.functional.silu(gate) * up) @ weights[part + "ffn_down.weight"].T
    last = normed(x, "output_norm.weight")[-1]
    return np.asarray(weights["token_embd.weight"] @ last)


def test_a_gguf_of_floats_is_converted_and_that_is_told(floats: Path, tmp_path: Path) -> None:
    options = EngineOptions(model=str(floats), cache_dir=str(tmp_path), device="cpu")
    backend = HfBackend()
    folder = Path(locate(options, quiet))
    note = "Tiny.F32.gguf is a GGUF in F32: its weights are converted to bf16"
    assert backend.load(options, str(folder), quiet).notes == [note]
    (folder / "gguf-types.json").unlink()  # as an earlier version left it
    note = "Tiny.F32.gguf is a GGUF: its weights are dequantised to bf16"
    assert converted_note(folder) == [note]
    assert converted_note(tmp_path) == []


def test_a_gguf_that_does_not_fit_is_not_converted(
    floats: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "glance", lambda _: Present(1000))
    options = EngineOptions(model=str(floats), cache_dir=str(tmp_path), device="cpu")
    with pytest.raises(InspectError, match="the model needs") as raised:
        locate(options, quiet)
    assert raised.value.code == "no_memory"
    assert cached_models(tmp_path) == []
