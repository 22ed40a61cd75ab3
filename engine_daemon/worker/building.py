"""Fill a folder of the cache once: beside, synced, renamed; parallel builders wait for each other.

Knows locks and files, nothing of what is built.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine_daemon.errors import Exit, InspectError
from engine_daemon.model_store import MANIFEST


def build_once(
    folder: Path,
    fill: Callable[[Path], None],
    manifest: bytes,
    waiting: Callable[[], None],
) -> Path:
    """`folder`, complete: there already, built by another process meanwhile, or by `fill` now.

    `fill` gets an empty folder beside. `manifest` is written last, so a folder without the same
    one is not complete and is built anew. `waiting` is called once when another process is
    building. Raises InspectError (exit 3) when the cache cannot be written.
    """
    if _complete(folder, manifest):
        return folder
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(folder.with_name(f".{folder.name}.lock"), waiting):
            if not _complete(folder, manifest):
                _build(folder, fill, manifest)
    except OSError as error:
        raise InspectError(
            f"cannot write the model cache {folder.parent}: {error.strerror or error}",
            "Free some space, or choose another place in config.toml [paths] cache",
            exit_code=Exit.MODEL,
            code="model",
        ) from error
    return folder


def check_room(said: str) -> None:
    """Raise OSError when what another program or library said is that the disk is full."""
    for number in (errno.ENOSPC, errno.EDQUOT):
        if os.strerror(number) in said:
            raise OSError(number, os.strerror(number))


def _build(folder: Path, fill: Callable[[Path], None], manifest: bytes) -> None:
    for left_over in folder.parent.glob(f".{folder.name}.*.part"):
        shutil.rmtree(left_over)  # whoever made it is gone: we hold the lock
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    part.mkdir(mode=0o700)
    try:
        fill(part)
        (part / MANIFEST).write_bytes(manifest)
        _sync(part)
        if folder.exists():
            shutil.rmtree(folder)
        part.rename(folder)
        _sync_one(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _complete(folder: Path, manifest: bytes) -> bool:
    try:
        return (folder / MANIFEST).read_bytes() == manifest
    except OSError:
        return False


@contextmanager
def _locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold an flock on `path`, which the kernel drops with the process however it ends."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        _sync_one(path)
    _sync_one(folder)


def _sync_one(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
