"""GGUF files as models: dequantised as their format says, and that is told."""

from pathlib import Path

import gguf.quants
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
