"""Safetensors headers: everything that is not exactly whole is found before torch is asked."""

import json
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_daemon.errors import Exit, InspectError
from engine_daemon.worker.checkpoint import Checkpoint, check_folder, read_header

TENSORS: dict[str, object] = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
    "b": {"dtype": "F32", "shape": [], "data_offsets": [12, 16]},
    "empty": {"dtype": "F32", "shape": [0, 4], "data_offsets": [16, 16]},
}


def write(path: Path, header: object, data: int = 16) -> Path:
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(data))
    return path


def test_a_sound_file(tmp_path: Path) -> None:
    header = read_header(write(tmp_path / "m.safetensors", TENSORS))
    assert header.tensors == {"a": 12, "b": 4, "empty": 0}
    assert header.size == (tmp_path / "m.safetensors").stat().st_size
    assert header.file == "m.safetensors"


def test_what_torch_writes_is_sound(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    tensors = {
        str(x): torch.zeros(3, 5).to(x)
        for x in (torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.float8_e4m3fn)
    }
    save_file(tensors, tmp_path / "m.safetensors")
    assert set(read_header(tmp_path / "m.safetensors").tensors) == set(tensors)


def changed(name: str, **fields: object) -> dict[str, object]:
    entry = TENSORS[name]
    assert isinstance(entry, dict)
    return TENSORS | {name: entry | fields}


@pytest.mark.parametrize(
    ("header", "data"),
    [
        (TENSORS, 15),
        (TENSORS, 17),
        (TENSORS, 0),
        ([], 0),
        ("text", 0),
        (TENSORS | {"c": 3}, 16),
        (TENSORS | {"c": {"dtype": "F32"}}, 16),
        (changed("a", shape=[2, 4]), 16),
        (changed("a", shape="ab"), 16),
        (changed("a", data_offsets=[0]), 16),
        (changed("a", data_offsets=[0, "x"]), 16),
        (changed("b", data_offsets=[8, 12]), 16),
        (changed("b", data_offsets=[16, 20]), 20),
        (changed("b", data_offsets=[16, 12]), 16),
        (changed("b", dtype=["F32"]), 16),
    ],
)
def test_damaged_files(tmp_path: Path, header: object, data: int) -> None:
    with pytest.raises(InspectError, match="truncated or damaged") as caught:
        read_header(write(tmp_path / "m.safetensors", header, data))
    assert caught.value.exit_code == Exit.MODEL


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(content=st.binary(max_size=40) | st.integers(0, 300))
def test_nothing_else_escapes(tmp_path: Path, content: bytes | int) -> None:
    """Random bytes, and a sound file cut anywhere."""
    path = write(tmp_path / "m.safetensors", TENSORS)
    whole = path.read_bytes()
    if isinstance(content, int) and content >= len(whole):
        return
    path.write_bytes(content if isinstance(content, bytes) else whole[:content])
    with pytest.raises(InspectError):
        read_header(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InspectError):
        read_header(tmp_path / "gone.safetensors")


def test_weights_id_tells_checkpoints_apart(tmp_path: Path) -> None:
    one = read_header(write(tmp_path / "a.safetensors", TENSORS))
    same = read_header(write(tmp_path / "a.safetensors", TENSORS))
    named = read_header(write(tmp_path / "b.safetensors", TENSORS))
    shaped = read_header(write(tmp_path / "a.safetensors", changed("a", shape=[3, 2])))
    ids = [Checkpoint(tmp_path, {}, [x]).weights_id() for x in (one, same, named, shaped)]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3
    assert Checkpoint(tmp_path, {}, [one, named]).size == one.size + named.size


def test_whole_numbers_for_weights_need_the_name_of_a_quantisation(tmp_path: Path) -> None:
    config = {"model_type": "llama"}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    (tmp_path / "tokenizer.json").write_text("{}", "utf-8")
    tensors = {
        "mask": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]},
        "a.weight": {"dtype": "I8", "shape": [4], "data_offsets": [8, 12]},
    }
    write(tmp_path / "model.safetensors", tensors, 12)
    with pytest.raises(InspectError, match=r"a\.weight as I8") as caught:
        check_folder(tmp_path)
    assert caught.value.exit_code == Exit.MODEL
    named = {**config, "quantization_config": {"quant_method": "compressed-tensors"}}
    (tmp_path / "config.json").write_text(json.dumps(named), "utf-8")
    assert check_folder(tmp_path).shards[0].tensors["a.weight"] == 4
    tensors["a.weight"] |= {"dtype": "F16", "shape": [2]}
    write(tmp_path / "model.safetensors", tensors, 12)
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    assert check_folder(tmp_path).shards[0].tensors["a.weight"] == 4
