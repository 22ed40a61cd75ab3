"""`daemon logs`: the end of the daemon's log, and with `-f` what comes.

Reads the file and the part before it (`hub.log_file` puts a full one aside); needs no daemon.
"""

import contextlib
import os
import time
from pathlib import Path
from typing import Final

from engine_daemon.cli.options import Given
from engine_daemon.cli.output import tell
from engine_daemon.cli.target import running_target
from engine_daemon.errors import Exit, InspectError
from engine_daemon.paths import read_regular

DEFAULT_LINES: Final = 200
_LOOK_S: Final = 0.1


def main(given: Given) -> int:
    """Print the last lines; with `--follow` go on until interrupted."""
    paths = running_target(given).paths
    following = _Following(paths.log)
    try:
        log = read_regular(paths.log)
    except FileNotFoundError:
        raise InspectError(
            f"the daemon {paths.name} has no log yet", exit_code=Exit.DAEMON
        ) from None
    except OSError as error:
        raise InspectError(
            f"cannot read {paths.log}: {error.strerror}", exit_code=Exit.DAEMON, code="io"
        ) from None
    whole = log[: log.rfind(b"\n") + 1] if given.follow else log
    for line in _last(paths.log, whole, DEFAULT_LINES if given.lines is None else given.lines):
        tell(line)
    if given.follow:
        following.run(len(whole))
    return 0


def _last(path: Path, log: bytes, count: int) -> list[str]:
    """The last `count` lines, reaching into the part before where that is needed."""
    lines = log.splitlines()
    if len(lines) < count:
        with contextlib.suppress(OSError):
            lines = [*read_regular(_before(path)).splitlines(), *lines]
    return [_text(line) for line in lines[len(lines) - min(count, len(lines)) :]]


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


def _before(path: Path) -> Path:
    """The part that was put aside last."""
    return path.with_name(f"{path.name}.1")


class _Following:
    """Prints whole lines from a place on, over the moments at which the file is put aside."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._aside = self._identity()
        self._rest = b""

    def run(self, place: int) -> None:
        """Go on from byte `place` until interrupted."""
        while True:
            aside = self._identity()
            size = self._size()
            if aside != self._aside and (size < place or place == 0):
                self._print(_read_from(_before(self._path), place))
                self._aside, place = aside, 0
            elif size < place:  # somebody else emptied it
                place = 0
            more = _read_from(self._path, place)
            place += len(more)
            self._print(more)
            time.sleep(_LOOK_S)

    def _print(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            tell(_text(line))

    def _identity(self) -> tuple[int, int] | None:
        """Which part lies aside now."""
        try:
            info = os.stat(_before(self._path))
        except OSError:
            return None
        return info.st_dev, info.st_ino

    def _size(self) -> int:
        try:
            return os.stat(self._path).st_size
        except OSError:
            return 0


def _read_from(path: Path, place: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(place)
            return file.read()
    except OSError:
        return b""
