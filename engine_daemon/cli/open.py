"""`open FILE`: a recording goes on as a session of a daemon.

A file of the daemon's own folder is taken up as the session it is; any other is copied there as a
new one. Knows files and the daemon; shows nothing.
"""

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import Final

from engine_daemon.addressing import attach_line
from engine_daemon.cli.options import Given
from engine_daemon.cli.output import say, tell
from engine_daemon.cli.recordings import is_written, open_recording, say_missing
from engine_daemon.cli.request import who
from engine_daemon.cli.target import Target, attached_or_gone, ensure_running, on_running, target_of
from engine_daemon.client import DaemonClient
from engine_daemon.errors import Exit, InspectError
from engine_daemon.paths import host, unusable
from engine_daemon.protocol.commands import Reopen
from engine_daemon.protocol.state import SessionInfo, State
from engine_daemon.recording.copying import check_continuable, copy_into
from engine_daemon.recording.identity import new_session
from engine_daemon.recording.reader import Recording

_TOLD_S: Final = 10.0
"""How long the daemon's next word on its sessions may take."""
_REJECTED_S: Final = 1.0
"""One that is not there by then was closed again, or the daemon is slow."""
_LOOK_S: Final = 0.02


def main(arguments: list[str], given: Given) -> int:
    """`open FILE` without a terminal: open it and say where it stands."""
    target = target_of(given)
    info = open_session(arguments[0], given, target)
    step = f" at step {info.place.step}" if info.place.kind != "waiting" else ""
    tell(f"{info.session} is open, {info.status}{step}")
    if info.other_model:
        say("note: it was made with another model; its history is read-only here")
    say(f"show it: {attach_line(target.paths.name, info.session)}")
    return Exit.DONE


def open_session(name: str, given: Given, target: Target) -> SessionInfo:
    """Have the daemon (started if need be) take the recording up; the session as it stands.

    Raises InspectError: 2 no such file, 6 unreadable, 4 it cannot be continued.
    """
    with open_recording(name, given) as recording:
        already = _is_own(recording, target) and is_written(recording)
        if already:
            say(f"{recording.path.stem} is open already; it stays as it is")
        say_missing(recording, what_there_is=not already)
        check_continuable(recording)
        ensure_running(target)
        session, copied = _in_place(recording, target)
    try:
        return on_running(target, lambda: asyncio.run(_reopen(target, session, who(given))))
    except BaseException:
        if copied is not None:  # nobody took it up
            with contextlib.suppress(OSError):
                copied.unlink()
        raise


def _in_place(recording: Recording, target: Target) -> tuple[str, Path | None]:
    """The session to take up; and the copy that was made for it, if one was."""
    folder = target.paths.recordings
    if _is_own(recording, target):
        return recording.path.stem, None
    session = new_session()
    try:
        path = copy_into(folder, recording, session, host(), target.paths.name)
    except OSError as error:
        raise unusable(error) from None
    return session, path


def _is_own(recording: Recording, target: Target) -> bool:
    """It is the daemon's own file of the session."""
    folder = os.path.realpath(target.paths.recordings)
    own = os.path.dirname(os.path.realpath(recording.path)) == folder
    opened = recording.opened
    return own and opened is not None and recording.path.stem == opened.session


async def _reopen(target: Target, session: str, name: str) -> SessionInfo:
    client = DaemonClient(target.paths, who=name, client="open", reconnect=False)
    async with attached_or_gone(client):
        await client.command(Reopen(session=session), session)
        began, looked = time.monotonic(), False
        while (found := _found(client.state, session)) is None:
            waited = time.monotonic() - began
            if waited > _REJECTED_S and not looked:
                looked = True
                _check_not_rejected(target.paths.recordings / f"{session}.lir")
            if waited > _TOLD_S:
                raise InspectError(
                    f"{session} did not stay open",
                    f"llm-inspect sessions show {session}",
                    exit_code=Exit.DAEMON,
                    code="no_session",
                )
            await asyncio.sleep(_LOOK_S)
    return found


def _check_not_rejected(path: Path) -> None:
    """One whose prompt this model cannot use is closed at once, and its log says why."""
    with Recording.open(path) as recording:
        rejected = recording.columns().rejected
    if rejected is not None:
        raise InspectError(
            rejected.message, rejected.hint, exit_code=Exit.DAEMON, code=rejected.code
        )


def _found(state: State, session: str) -> SessionInfo | None:
    return next((one for one in state.sessions if one.session == session), None)
