"""What counts as cached, and that asking needs no torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from engine_daemon.model_store import (
    MANIFEST,
    cached_models,
    find_cached,
    hub_folder,
    models_folder,
)


@pytest.fixture(autouse=True)
def _hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def put(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_bytes(b"12345")
    return folder


def test_an_empty_cache(tmp_path: Path) -> None:
    assert cached_models(tmp_path) == []
    assert find_cached("smollm2-135m", tmp_path) is None


def test_converted_models_count_when_complete(tmp_path: Path) -> None:
    base = models_folder(tmp_path)
    whole = put(base / "one", "model.safetensors", MANIFEST)
    put(base / "half", "model.safetensors")
    put(base / ".one.123.part", "model.safetensors", MANIFEST)
    (base / ".one.lock").touch()
    assert [(x.name, x.path, x.bytes) for x in cached_models(tmp_path)] == [("one", whole, 10)]
    assert find_cached("one", tmp_path) == whole
    assert find_cached("half", tmp_path) is None


@pytest.mark.parametrize("name", ["", ".", "..", "../one", "a/b", "/"])
def test_names_do_not_leave_the_cache(tmp_path: Path, name: str) -> None:
    put(tmp_path / "one", MANIFEST)
    put(models_folder(tmp_path), MANIFEST)
    assert find_cached(name, tmp_path) is None


def test_hub_snapshots_count_when_loadable(tmp_path: Path) -> None:
    whole = ("config.json", "tokenizer.json", "model.safetensors")
    put(tmp_path / "hub" / "models--acme--a" / "snapshots" / "1", *whole)
    put(tmp_path / "hub" / "models--acme--b" / "snapshots" / "1", "config.json")
    put(tmp_path / "hub" / "datasets--acme--c" / "snapshots" / "1", *whole)
    put(tmp_path / "hub" / "models--old" / "snapshots" / "1", *whole)
    assert [(x.name, x.bytes) for x in cached_models(tmp_path)] == [("acme/a", 15)]


def test_where_the_hub_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hub_folder() == tmp_path / "hub"
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.delenv("HUGGINGFACE_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", "/big/disk")
    assert hub_folder() == Path("/big/disk/hub")
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert hub_folder() == Path("/x/huggingface/hub")


def test_needs_no_torch() -> None:
    code = (
        "import sys, engine_daemon.model_store;"
        "print([x for x in ('torch', 'transformers', 'numpy', 'huggingface_hub')"
        " if x in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
