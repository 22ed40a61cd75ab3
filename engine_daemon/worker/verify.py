"""SHA-256 of the weights files, when it is asked for (`--verify`).

Reads every byte. Knows files; no model.
"""

import hashlib
import re
from pathlib import Path
from typing import Final

from engine_daemon.protocol.values import WeightsFile
from engine_daemon.worker.backends.base import ProgressFn
from engine_daemon.worker.checkpoint import Checkpoint, refuse

_BLOCK: Final = 1 << 22
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def verified_files(checkpoint: Checkpoint, progress: ProgressFn) -> list[WeightsFile]:
    """The weights files with their hashes.

    A file out of the Hugging Face cache lies there under its own SHA-256: InspectError (exit 3)
    when it is another now.
    """
    done, files = 0, []
    for shard in checkpoint.shards:
        path = checkpoint.folder / shard.file
        digest = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
                    done += len(block)
                    progress("verify", done, checkpoint.size)
        except OSError as error:
            refuse(f"cannot read {path}: {error.strerror or error}", "Get the checkpoint again")
        found = digest.hexdigest()
        _check_name(path, found)
        files.append(WeightsFile(file=shard.file, bytes=shard.size, sha256=found))
    return files


def _check_name(path: Path, found: str) -> None:
    expected = path.resolve().name
    if path.is_symlink() and _SHA256.fullmatch(expected) and expected != found:
        refuse(
            f"{path} has SHA-256 {found[:16]}…, expected {expected[:16]}…: it is damaged",
            "Delete it and download it again",
        )
