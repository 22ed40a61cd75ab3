"""Checksum of the parameters in memory, hashes of the files, progress by shard."""

import hashlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine_daemon.errors import InspectError
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.backends.base import Loaded
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.weights_sum import checksum
from tests.worker.checkpoints import quiet, save_tiny

pytestmark = pytest.mark.engine


def load(folder: Path, *, verify: bool = False) -> tuple[HfBackend, Loaded]:
    backend = HfBackend()
    asked = EngineOptions(model=str(folder), device="cpu", verify=verify)
    return backend, backend.load(asked, str(folder), quiet)


def test_the_sum_is_of_the_words_worked_out_in_plain_python() -> None:
    tensor = torch.tensor([1.5, -2.0, 3.25], dtype=torch.bfloat16)  # one word and a half
    raw = tensor.view(torch.uint8).tolist()
    word = int.from_bytes(bytes(raw[:4]), "little", signed=True)
    values = [(word, 1), (raw[4], 1), (raw[5], 2)]
    plain = sum(v for v, _ in values) % 2**64
    weighted = sum(v * p * 0x9E3779B1 for v, p in values) % 2**64
    digest = hashlib.sha256(b"w\0torch.bfloat16\x003\0")
    digest.update(plain.to_bytes(8, "little") + weighted.to_bytes(8, "little"))
    assert checksum([("w", tensor)], quiet) == digest.hexdigest()


def test_any_change_shows_and_none_does_not() -> None:
    torch.manual_seed(1)
    first = torch.randn(300, 70)
    known = checksum([("w", first)], quiet)
    assert checksum([("w", first.clone())], quiet) == known
    assert checksum([("w", first.T.contiguous().T)], quiet) == known
    swapped = first.clone()
    swapped[0, 0], swapped[7, 3] = first[7, 3], first[0, 0]
    nudged = first.clone().view(torch.int32)
    nudged[299, 69] ^= 1
    changed = [("w", swapped)], [("w", nudged.view(torch.float32))], [("v", first)]
    reshaped = [("w", first.reshape(70, 300))]
    sums = {checksum(named, quiet) for named in (*changed, reshaped)}
    assert len(sums) == 4
    assert known not in sums


def test_frozen_weights_stay_as_loaded_and_a_change_is_seen(tmp_path: Path) -> None:
    backend, loaded = load(save_tiny(tmp_path))
    known = loaded.model.weights_checksum
    assert known is not None
    backend.forward([5, 6, 7], backend.new_cache("kv"))
    assert backend.sum_weights(quiet) == known
    again, loaded_again = load(tmp_path)
    assert loaded_again.model.weights_checksum == known
    with torch.no_grad():
        next(again._model.parameters())[3, 3] += 1e-3
    assert again.sum_weights(quiet) != known


def test_files_are_hashed_only_when_asked_for(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path)
    assert [x.sha256 for x in load(folder)[1].model.weights_files] == [None]
    (found,) = load(folder, verify=True)[1].model.weights_files
    raw = (folder / "model.safetensors").read_bytes()
    assert found.sha256 == hashlib.sha256(raw).hexdigest()
    assert found.bytes == len(raw)


def test_a_file_of_the_hub_cache_must_be_what_its_name_says(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "snapshot")
    weights = folder / "model.safetensors"
    name = hashlib.sha256(weights.read_bytes()).hexdigest()
    blob = tmp_path / name
    weights.rename(blob)
    weights.symlink_to(blob)
    load(folder, verify=True)
    tensors = load_file(blob)
    first = next(iter(tensors))
    tensors[first] = tensors[first] + 1
    save_file(tensors, blob, {"format": "pt"})
    load(folder)
    with pytest.raises(InspectError, match="damaged") as caught:
        load(folder, verify=True)
    assert caught.value.exit_code == 3


def test_progress_is_by_bytes_and_by_file(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path, max_shard_size="60KB")
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 2
    told: list[tuple[str, int, int]] = []
    backend = HfBackend()
    options = EngineOptions(model=str(folder), device="cpu", verify=True)
    backend.load(options, str(folder), lambda *step: told.append(step))
    total = sum(path.stat().st_size for path in shards)
    stages = list(dict.fromkeys(stage for stage, _, _ in told))
    files = [stage for stage in stages if stage.startswith("load ")]
    assert set(files) == {f"load {k}/{len(shards)}" for k in range(1, len(shards) + 1)}
    assert stages[0] == "verify"
    assert stages[-2:] == ["checksum", "warm up"]
    loading = [(done, of) for stage, done, of in told if stage.startswith("load")]
    assert {of for _, of in loading} == {total}
    assert [done for done, _ in loading] == sorted(done for done, _ in loading)
    assert loading[-1] == (total, total)
    verifying = [done for stage, done, _ in told if stage == "verify"]
    assert verifying[-1] == total
