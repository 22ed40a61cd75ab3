"""Recordings as a command line names them: a file, or a session whose recording is kept here.

Knows the folder of recordings and what to say of a damaged one; reads no events.
"""

from pathlib import Path
from typing import Final

from engine_daemon.cli.options import Given
from engine_daemon.cli.output import say
from engine_daemon.cli.target import target_of
from engine_daemon.errors import InspectError
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.ending import is_written as being_written
from engine_daemon.recording.folder import recordings_in
from engine_daemon.recording.reader import Recording

_LINES: Final = 8
"""Of what is missing; of a badly damaged file the rest is counted."""


def open_recording(name: str, given: Given, into: Columns | None = None) -> Recording:
    """Open what `name` means and see that something of it can be shown.

    Raises InspectError: 2 when there is no such file, 6 when nothing of it is sound.
    """
    recording = Recording.open(find_recording(name, given), into)
    try:
        recording.check()
    except BaseException:
        recording.close()
        raise
    return recording


def find_recording(name: str, given: Given) -> Path:
    """The file of this name; else the recording of the session with this id, or beginning of one.

    Of what is neither the path is given as it is.
    """
    if not name:
        raise InspectError("FILE is empty", "Give a .lir file, or the id of a session")
    path = Path(name)
    if path.exists() or "/" in name or not name.isalnum():
        return path
    folder = target_of(given).paths.recordings
    found = recordings_in(folder, name.upper())
    if len(found) > 1:
        names = ", ".join(one.stem for one in found)
        raise InspectError(f"{name!r} means several recordings: {names}", code="no_session")
    return found[0] if found else path


def is_written(recording: Recording) -> bool:
    """It has no end because its session is open: somebody writes it still."""
    return recording.state in ("open", "cut") and being_written(recording.path)


def say_missing(recording: Recording, *, what_there_is: bool = False) -> None:
    """Name on standard error what a recording lacks, a line each. `what_there_is`: of one that is
    still written say that it was taken as it is now."""
    written = is_written(recording)
    if written and what_there_is:
        say(f"{recording.path.name}: its session is still open; this is what it holds now")
    lines = recording.report(written=written)
    for line in lines[:_LINES]:
        say(f"{recording.path.name}: {line}")
    if len(lines) > _LINES:
        say(f"{recording.path.name}: and {len(lines) - _LINES} more")
