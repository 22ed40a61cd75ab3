"""Models by `owner/name` from the Hugging Face hub, into that library's own cache.

Looks at what a repository holds before it downloads it. Knows nothing of loading.
"""

import errno
import os
import re
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from engine_daemon.errors import Exit, InspectError
from engine_daemon.model_store import hub_folder, looks_loadable
from engine_daemon.outside import parse_json
from engine_daemon.worker.backends.base import ProgressFn
from engine_daemon.worker.checkpoint import check_config, check_folder, refuse
from engine_daemon.worker.watching import watch

if TYPE_CHECKING:
    from huggingface_hub import HfApi

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_WANTED: Final = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
_UNWANTED: Final = ("*/*", "consolidated*")
"""Other frameworks' folders, and a second copy of the weights that some repositories carry."""
_ANSWER_S: Final = 10.0

T = TypeVar("T")


def hub_model(name: str, revision: str | None, progress: ProgressFn) -> Path:
    """The folder of repository `name`: complete in the cache, or downloaded now."""
    cached = _cached(name, revision)
    if cached is not None:
        return cached
    if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
        _no_network(name, "HF_HUB_OFFLINE is set")
    from huggingface_hub import HfApi

    return download(HfApi(), name, revision, progress)


def _cached(name: str, revision: str | None) -> Path | None:
    """The snapshot that `revision` (default: main) names, if all of it is there."""
    repository = hub_folder() / ("models--" + name.replace("/", "--"))
    try:
        commit = (repository / "refs" / (revision or "main")).read_text().strip()
    except OSError:
        commit = revision or ""
    folder = repository / "snapshots" / commit
    if not commit or not looks_loadable(folder):
        return None
    try:
        check_folder(folder)
    except InspectError:
        return None  # incomplete: the download goes on where it stopped
    return folder


def download(api: "HfApi", name: str, revision: str | None, progress: ProgressFn) -> Path:
    """Look at the repository, then fetch what is needed of it and not there yet."""
    progress("look up", 0, 0)
    blobs = hub_folder() / ("models--" + name.replace("/", "--")) / "blobs"
    with ThreadPoolExecutor(1, "hub") as pool:
        total = _answer(name, pool.submit(_plan, api, name, revision))
        fetch = pool.submit(
            api.snapshot_download,
            name,
            revision=revision,
            cache_dir=str(hub_folder()),
            allow_patterns=list(_WANTED),
            ignore_patterns=list(_UNWANTED),
            etag_timeout=_ANSWER_S,
        )

        def finished(seconds: float) -> bool:
            return not wait([fetch], seconds).not_done

        watch(finished, blobs, "download", total, progress)
        folder = Path(_answer(name, fetch))
    progress("download", total, total)
    return folder


def _plan(api: "HfApi", name: str, revision: str | None) -> int:
    """Bytes to fetch; InspectError when the repository holds nothing we would load."""
    info = api.model_info(name, revision=revision, files_metadata=True, timeout=_ANSWER_S)
    sizes = {x.rfilename: x.size or 0 for x in info.siblings or [] if "/" not in x.rfilename}
    if "adapter_config.json" in sizes:
        beside = (
            "holds an adapter beside its weights" if "config.json" in sizes else "is an adapter"
        )
        refuse(
            f"{name} {beside}, which is not supported",
            "Merge it into its base model and give that folder",
        )
    if "config.json" not in sizes:
        refuse(f"{name} has no config.json", _other_formats(sizes))
    if not any(file.endswith(".safetensors") for file in sizes):
        refuse(f"{name} has no safetensors weights", _other_formats(sizes))
    if "tokenizer.json" not in sizes:
        refuse(f"{name} has no tokenizer.json", "Only fast tokenizers are supported")
    config = api.hf_hub_download(
        name,
        "config.json",
        revision=revision,
        cache_dir=str(hub_folder()),
        etag_timeout=_ANSWER_S,
    )
    check_config(parse_json(Path(config).read_bytes()), name)
    return sum(size for file, size in sizes.items() if _is_wanted(file))


def _is_wanted(file: str) -> bool:
    return any(fnmatch(file, pattern) for pattern in _WANTED) and not any(
        fnmatch(file, pattern) for pattern in _UNWANTED
    )


def _other_formats(files: Iterable[str]) -> str:
    endings = {Path(file).suffix for file in files}
    if ".gguf" in endings:
        return "Download one of its .gguf files and give its path"
    if endings & {".bin", ".pt", ".pth"}:
        return "It holds pickle weights only, which can run code: never loaded"
    return "Give a repository that holds a whole language model"


def _answer(name: str, future: "Future[T]") -> T:
    """The result, or what the library raised as an error a person can act on."""
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, InspectError) or not isinstance(error, Exception):
        raise error
    from huggingface_hub import errors

    match error:
        case errors.GatedRepoError():
            message, hint = (
                "is gated",
                "Accept its terms on the hub and log in with `hf auth login`",
            )
        case errors.RepositoryNotFoundError():
            message, hint = "is not on the hub, or is private", "Check the spelling, or log in"
        case errors.RevisionNotFoundError():
            message, hint = "has no such revision", "Check --revision"
        case errors.HfHubHTTPError():
            message, hint = f"cannot be had: {_line(error)}", "Try again later"
        case OSError() if error.errno == errno.ENOSPC:
            message, hint = f"does not fit on the disk of {hub_folder()}", "Set HF_HOME elsewhere"
        case _:
            _no_network(name, _line(error))
    raise InspectError(f"{name} {message}", hint, exit_code=Exit.MODEL, code="model") from error


def _no_network(name: str, why: str) -> NoReturn:
    refuse(
        f"{name} is not cached and the hub cannot be reached: {why}",
        "Connect to a network, or give a folder or .gguf file with --model",
    )


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
