"""What a daemon is started with. Reads and writes files; starts nothing."""

import os
from pathlib import Path

import msgspec

from engine_daemon.protocol.worker import EngineOptions


class DaemonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one daemon, kept in its state directory for `restart`.

    `idle_exit_s` None = never. `implicit`: started by opening a screen or a run.
    """

    engine: EngineOptions = EngineOptions()
    idle_exit_s: float | None = None
    implicit: bool = False

    def save(self, path: Path) -> None:
        """Write the file beside and rename it into place, 0600."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".new")
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(self))
        os.replace(beside, path)

    @classmethod
    def read(cls, path: Path) -> "DaemonOptions":
        """The options last saved; OSError or msgspec.ValidationError when there are none."""
        return msgspec.json.decode(path.read_bytes(), type=cls)
