"""Recordings as a command line names them: a file, or a session whose recording is kept here.

Knows the folder of recordings and what to say of a damaged one; reads no events.
"""

import contextlib
from pathlib import Path
from typing import Final

from engine_daemon.cli.options import Given
from engine_daemon.cli.output import say
from engine_daemon.cli.target import Target, state_of, target_of
from engine_daemon.config import Asked
from engine_daemon.errors import InspectError
from engine_daemon.lookup import is_running
from engine_daemon.recording.columns import Columns
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


def is_served(recording: Recording, given: Given) -> bool:
    """Its session is open in the daemon meant, in whose folder it lies."""
    if recording.state != "open":
        return False
    with contextlib.suppress(InspectError, OSError):
        paths = target_of(given).paths
        if recording.path.resolve().parent == paths.recordings.resolve() and is_running(paths):
            sessions = state_of(Target(paths, Asked())).sessions
            return any(one.session == recording.path.stem for one in sessions)
    return False


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


def say_missing(recording: Recording, given: Given | None = None) -> None:
    """Name on standard error what a recording lacks, a line each. With `given`: the daemon meant is
    asked whether it has the session open, where the recording is its own."""
    served = given is not None and is_served(recording, given)
    if served:
        say(f"{recording.path.name}: open; this is what there is of it now")
    lines = recording.report(served=served)
    for line in lines[:_LINES]:
        say(f"{recording.path.name}: {line}")
    if len(lines) > _LINES:
        say(f"{recording.path.name}: and {len(lines) - _LINES} more")
