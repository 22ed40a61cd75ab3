"""Where models lie on this machine, and which of them are there. Torch-free.

Knows folders and names; loading and converting are the worker's.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine_daemon.paths import paths_for

DEMO_NAME: Final = "smollm2-135m"
"""The default model: SmolLM2-135M-Instruct out of a wheel on the package index."""
MANIFEST: Final = "llm-inspect.json"
"""In a folder of our cache: what it was converted from. Written last, so it means complete."""


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model that can be loaded without network. `bytes` of all its files."""

    name: str
    path: Path
    bytes: int


def cache_root(cache_dir: str | Path = "") -> Path:
    """The cache directory: the one given, else the user's (CONTRACT section 6)."""
    return Path(cache_dir) if str(cache_dir) else paths_for().cache


def models_folder(cache_dir: str | Path = "") -> Path:
    """Folder of the converted models, one folder a model."""
    return cache_root(cache_dir) / "models"


def hub_folder() -> Path:
    """The Hugging Face cache, shared with every other tool that uses it."""
    chosen = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    home = os.environ.get("HF_HOME")
    base = (
        Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    )
    return base.expanduser() / "hub"


def cached_models(cache_dir: str | Path = "") -> list[CachedModel]:
    """Every model that loads without network, by name: converted ones and the hub's cache."""
    found = [*_converted(models_folder(cache_dir)), *_from_hub(hub_folder())]
    return sorted(found, key=lambda model: model.name)


def find_cached(name: str, cache_dir: str | Path = "") -> Path | None:
    """The folder of the converted model `name`, if it is there and complete."""
    if name in ("", ".", "..") or "/" in name:
        return None
    folder = models_folder(cache_dir) / name
    return folder if (folder / MANIFEST).is_file() else None


def _converted(folder: Path) -> Iterator[CachedModel]:
    for path in _folders(folder):
        if not path.name.startswith(".") and (path / MANIFEST).is_file():
            yield CachedModel(path.name, path, _size(path))


def _from_hub(folder: Path) -> Iterator[CachedModel]:
    """The newest complete snapshot of each repository that holds safetensors."""
    for repository in _folders(folder):
        kind, _, name = repository.name.partition("--")
        if kind != "models" or "--" not in name:
            continue
        snapshots = sorted(
            _folders(repository / "snapshots"), key=lambda x: x.stat().st_mtime, reverse=True
        )
        for path in snapshots:
            if looks_loadable(path):
                yield CachedModel(name.replace("--", "/", 1), path, _size(path))
                break


def looks_loadable(folder: Path) -> bool:
    """True when configuration, tokenizer and at least one weights file are there."""
    return (
        (folder / "config.json").is_file()
        and (folder / "tokenizer.json").is_file()
        and any(folder.glob("*.safetensors"))
    )


def _folders(folder: Path) -> list[Path]:
    try:
        return [x for x in folder.iterdir() if x.is_dir()]
    except OSError:
        return []


def _size(folder: Path) -> int:
    return sum(x.stat().st_size for x in folder.iterdir() if x.is_file())
