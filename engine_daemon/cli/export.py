"""`export FILE --to FORMAT`: a recording as another file.

Knows where the bytes go; what they are is the format's.
"""

import contextlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from engine_daemon.cli.options import Given
from engine_daemon.cli.output import TerminalText, say, unwritable
from engine_daemon.cli.recordings import open_recording, say_missing
from engine_daemon.errors import Exit, InspectError
from engine_daemon.export.registry import EXPORTERS, exporter
from engine_daemon.nearest import suggestion
from engine_daemon.recording.format import MAGIC


def main(arguments: list[str], given: Given) -> int:
    """`export FILE`."""
    name = given.to
    if name is None:
        raise InspectError("export needs --to FORMAT", f"One of {', '.join(EXPORTERS)}")
    if name not in EXPORTERS:
        near = suggestion(name, EXPORTERS)
        raise InspectError(f"there is no format {name!r}", near)
    with open_recording(arguments[0], given) as recording:
        pieces = exporter(name)(recording)
        if given.out is None:
            _print(pieces, lines=name == "jsonl")
        else:
            _save(pieces, Path(given.out))
        say_missing(recording, what_there_is=True)
    return Exit.DONE


def _print(pieces: Iterable[bytes], *, lines: bool) -> None:
    """To standard output: the bytes, or on a terminal what is safe there."""
    sys.stdout.flush()
    if sys.stdout.isatty():
        pieces = map(_ascii, pieces) if lines else _safe(pieces)
    try:
        for piece in pieces:
            rest = piece
            while rest:
                rest = rest[os.write(sys.stdout.fileno(), rest) :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(error) from None


def _ascii(line: bytes) -> bytes:
    """A JSON line in which everything but ASCII is escaped."""
    return json.dumps(json.loads(line)).encode() + b"\n"


def _safe(pieces: Iterable[bytes]) -> Iterator[bytes]:
    text, encoding = TerminalText(), sys.stdout.encoding or "utf-8"
    for piece in pieces:
        yield text.feed(piece).encode(encoding, "backslashreplace")
    yield text.feed(b"", final=True).encode(encoding, "backslashreplace") + b"\n"


def _save(pieces: Iterable[bytes], path: Path) -> None:
    """To a file that is there in one piece or not at all; a recording is never overwritten."""
    try:
        if _is_recording(path):
            raise InspectError(f"{path} is a recording", "Export under another name")
        if path.exists() and not path.is_file():
            with path.open("wb", buffering=0) as device:  # a pipe, or /dev/stdout
                for piece in pieces:
                    device.write(piece)
            return
        _replace(pieces, path)
    except OSError as error:
        raise InspectError(
            f"cannot write {path}: {error.strerror}", exit_code=Exit.DAEMON, code="io"
        ) from None
    say(f"written to {path}")


def _replace(pieces: Iterable[bytes], path: Path) -> None:
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        mode = 0o666 & ~_umask()
    path = path.resolve()  # what a link leads to is written, the link stays
    fd, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(fd, "wb") as file:
            for piece in pieces:
                file.write(piece)
        os.chmod(beside, mode)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _is_recording(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC
