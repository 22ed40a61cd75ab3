"""What is refused before a byte of the weights is read, and where the parts of a model go."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker import fitting, memory
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.checkpoint import check_folder
from engine_daemon.worker.dividing import check_divides
from engine_daemon.worker.fp8 import (
    Shapes,
    check_blocks,
    dequantised_bytes,
    shapes_in,
    stored_fp8,
)
from engine_daemon.worker.host_memory import Present
from engine_daemon.worker.loading import check_model
from engine_daemon.worker.placement import Place, choose_place
from engine_daemon.worker.probe import RowDistribution
from engine_daemon.worker.sizes import beside_weights
from tests.worker import published_fp8
from tests.worker.checkpoints import quiet, save_tiny

pytestmark = pytest.mark.engine
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published_fp8.save(tmp_path_factory.mktemp("fp8") / "Tiny3.6-FP8")


def refused(call: Any) -> InspectError:
    with pytest.raises(InspectError) as raised:
        call()
    assert raised.value.exit_code == Exit.MODEL
    return raised.value


@pytest.mark.parametrize(
    ("config", "ranks", "numbers"),
    [
        (
            t.LlamaConfig(num_attention_heads=4, num_key_value_heads=2),
            3,
            "4 attention heads, 2",
        ),
        (
            t.LlamaConfig(num_attention_heads=4, num_key_value_heads=2),
            4,
            "2 key/value heads do",
        ),
        (t.LlamaConfig(intermediate_size=99, num_key_value_heads=2), 2, "99 units between"),
        (t.Qwen3_5TextConfig(linear_num_key_heads=2), 4, "2 key heads of linear attention"),
        (t.Qwen3_5TextConfig(linear_num_value_heads=6), 4, "6 value heads of linear attention"),
        (t.Qwen3MoeConfig(num_experts=6), 4, "6 experts"),
    ],
)
def test_what_does_not_divide(config: Any, ranks: int, numbers: str) -> None:
    check_divides(config, 1)
    error = refused(lambda: check_divides(config, ranks))
    assert numbers in error.message
    assert f"do not divide by {ranks} ranks" in error.message
    assert error.hint.startswith("Use --tp 1")


def test_the_sizes_of_the_large_model_fit_four_ranks() -> None:
    sizes = {"num_attention_heads": 24, "num_key_value_heads": 4, "linear_num_value_heads": 48}
    config = t.Qwen3_5TextConfig(intermediate_size=17408, hidden_size=5120, **sizes)
    check_divides(config, 4)
    assert refused(lambda: check_divides(config, 8)).hint == "Use --tp 1, 2 or 4"


def test_the_blocks_of_the_large_model_fit_four_ranks() -> None:
    """Shapes of Qwen3.6-27B-FP8, a layer of each kind."""
    linear = {"in_proj_qkv": [10240, 5120], "in_proj_z": [6144, 5120], "out_proj": [5120, 6144]}
    full = {"q_proj": [12288, 5120], "k_proj": [1024, 5120], "o_proj": [5120, 6144]}
    mlp = {"gate_proj": [17408, 5120], "down_proj": [5120, 17408]}
    shapes: Shapes = {}
    for kind, sizes in (("linear_attn", linear), ("self_attn", full), ("mlp", mlp)):
        for name, size in sizes.items():
            weight = f"model.language_model.layers.0.{kind}.{name}.weight"
            shapes[weight] = ("F8_E4M3", size)
            shapes[f"{weight}_scale_inv"] = ("BF16", [x // 128 for x in size])
    for ranks in (1, 2, 4):
        check_blocks(shapes, (128, 128), ranks)


def test_a_model_that_nobody_shared_out_has_one_rank() -> None:
    assert "no tensor-parallel plan" in refused(lambda: check_divides(t.GPT2Config(), 2)).message


def test_places_on_the_cpu() -> None:
    assert choose_place(EngineOptions(device="cpu")).devices == (CPU,)
    two = choose_place(EngineOptions(device="cpu", tp=2))
    assert (two.world, str(two), two.rank) == (2, "cpu", 0)
    free, whole = two.free_bytes(), memory.free_bytes(CPU)
    assert free is not None
    assert whole is not None
    assert free < 0.6 * whole


def test_places_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    free = [10, 40, 30, 20]

    def info(device: int | torch.device) -> tuple[int, int]:
        return free[device if isinstance(device, int) else device.index], 50

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(free))
    monkeypatch.setattr(torch.cuda, "mem_get_info", info)
    monkeypatch.setenv("PATH", "")  # no tool of a driver

    def place(**asked: Any) -> str:
        return str(choose_place(EngineOptions(**asked)))

    assert place(device="auto") == "cuda:1"
    assert place(device="auto", tp=3) == "cuda:1,2,3"
    assert place(device="cuda", tp=2) == "cuda:1,2"
    assert place(device="cuda:3") == "cuda:3"
    assert place(device="cuda:0,2") == "cuda:0,2"
    assert "there is no cuda:7" in refused(lambda: place(device="cuda:0,7")).message
    error = refused(lambda: place(device="auto", tp=8))
    assert (error.message, error.code) == ("8 ranks need 8 devices, there are 4", "device")


def test_the_published_fp8_layout(published: Path) -> None:
    checkpoint = check_folder(published)
    assert stored_fp8(checkpoint.config) == (128, 128)
    shapes = shapes_in(checkpoint)
    for ranks in (1, 2):
        check_blocks(shapes, (128, 128), ranks)
    assert "for each of 4 ranks" in refused(lambda: check_blocks(shapes, (128, 128), 4)).message
    shapes["a.q_proj.weight"] = ("F8_E4M3", [192, 128])
    shapes["a.q_proj.weight_scale_inv"] = ("BF16", [2, 1])
    error = refused(lambda: check_blocks(shapes, (128, 128), 1))
    assert "a.q_proj.weight of 192x128 is no whole number of blocks" in error.message


@pytest.mark.parametrize("dtype", ["fp32", "auto"])
def test_fp8_is_dequantised_as_its_scales_say(published: Path, dtype: Any) -> None:
    backend = HfBackend()
    options = EngineOptions(model=str(published), device="cpu", dtype=dtype)
    loaded = backend.load(options, str(published), quiet)
    ids = [(7 * i + 3) % 250 for i in range(30)]
    distribution = backend.forward(ids, backend.new_cache("kv")).distribution
    assert isinstance(distribution, RowDistribution)
    plain = published_fp8.dequantised_model(
        published, torch.float32 if dtype == "fp32" else torch.bfloat16
    )
    with torch.inference_mode():
        row = plain(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float()
    scale = float(row.abs().max())
    tolerance = 1e-5 if dtype == "fp32" else 2e-2
    assert float((distribution.row.float() - row).abs().max()) <= tolerance * scale
    word = "fp32" if dtype == "fp32" else "bf16"
    assert loaded.notes == [f"no FP8 kernels for cpu: the FP8 weights are dequantised to {word}"]
    assert (loaded.model.dtype, loaded.model.ranks) == (word, 1)
    assert not any("visual" in name or "mtp" in name for name in backend._model.state_dict())
    backend.close()


def test_memory_is_asked_for_what_dequantised_weights_take(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice the file's bytes in bf16; the vision tower and the extra head are not loaded."""
    checkpoint = check_folder(published)
    options, place = EngineOptions(model=str(published), device="cpu"), Place((CPU,))
    kept = {
        name: found
        for name, found in shapes_in(checkpoint).items()
        if not name.startswith(("mtp.", "model.visual."))
    }
    text = t.AutoConfig.from_pretrained(published).get_text_config(decoder=True)
    need = dequantised_bytes(kept, 2) + beside_weights(text, text.layer_types, 2)
    monkeypatch.setattr(fitting, "glance", lambda _: Present(need))
    check_model(checkpoint, options, place)
    monkeypatch.setattr(fitting, "glance", lambda _: Present(need - 1))
    assert refused(lambda: check_model(checkpoint, options, place)).code == "no_memory"


def test_nothing_else_is_taken_for_fp8(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "tiny")
    assert stored_fp8(json.loads((folder / "config.json").read_text())) is None
    assert stored_fp8({"quantization_config": {"quant_method": "fp8"}}) is None
