"""`sessions show|rename|close|keep|rm`: one session or recording of a daemon.

An open session is the daemon's to change; a recording that nobody holds is changed here, under the
lock of its log.
"""

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import Final

import msgspec

from engine_daemon.cli import control
from engine_daemon.cli.options import Given
from engine_daemon.cli.output import say, tell
from engine_daemon.cli.recordings import say_missing
from engine_daemon.cli.request import who
from engine_daemon.cli.sessions import Row, rows_of
from engine_daemon.cli.target import Target, state_of, target_of
from engine_daemon.cli.why import STOPS
from engine_daemon.client import DaemonClient
from engine_daemon.errors import Exit, InspectError
from engine_daemon.export.objects import Line
from engine_daemon.lookup import is_running
from engine_daemon.protocol.codec import pack_event
from engine_daemon.protocol.commands import AnyCommand, Release, Rename
from engine_daemon.protocol.events import Renamed
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.folder import pin
from engine_daemon.recording.reader import Recording
from engine_daemon.recording.writer import LogError, LogWriter

_TITLE_CHARACTERS: Final = 200
_PATIENCE_S: Final = 5.0
"""With others who change the same recording."""


def show(arguments: list[str], given: Given) -> int:
    """`sessions show SESSION`: what its recording tells."""
    row = _find(target_of(given), arguments[0])
    columns = Columns()
    with Recording.open(Path(row.file), columns) as recording:
        recording.check()
        if not row.open:
            say_missing(recording)
        facts = _facts(row, recording, columns)
    if given.json:
        tell(msgspec.json.encode(facts).decode())
    else:
        width = max(map(len, facts))
        for name, value in facts.items():
            tell(f"{name.replace('_', ' '):<{width}}  {_in_words(name, value)}")
    return Exit.DONE


def _in_words(name: str, value: object) -> str:
    """A fact as people say it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    return STOPS.get(str(value), str(value)) if name == "stopped_by" else str(value)


def _facts(row: Row, recording: Recording, columns: Columns) -> Line:
    engine = columns.engine
    return {
        "session": row.session,
        "title": row.title,
        "status": row.status,
        "kept": row.kept,
        "steps": len(columns),
        "branches": len(columns.branches()),
        "prompt_tokens": len(columns.prompt_ids),
        "stopped_by": _stopped_by(row, columns),
        "trouble": row.trouble or None,
        "model": engine.model.name if engine else None,
        "engine": engine.backend if engine else None,
        "dtype": engine.model.dtype if engine else None,
        "opened": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.created_ns / 1e9)),
        "copy_of": (columns.opened.origin if columns.opened else "") or None,
        "events": len(recording),
        "recording": recording.state,
        "bytes": os.stat(row.file).st_size,
        "file": row.file,
    }


def _stopped_by(row: Row, columns: Columns) -> str | None:
    """A disk that is full may not even have room for the word that it stopped the session."""
    if row.trouble:
        return "disk_full"
    return columns.last_stop or (columns.stop.reason if columns.stop else None)


def rename(arguments: list[str], given: Given) -> int:
    """`sessions rename SESSION TITLE`."""
    target, title = target_of(given), " ".join(arguments[1].splitlines())
    if not title.strip() or len(title) > _TITLE_CHARACTERS:
        raise InspectError(f"a title has 1 to {_TITLE_CHARACTERS} characters")
    row = _find(target, arguments[0])
    if not _renamed_there(target, row, title, given):
        _rename_closed(Path(row.file), title)
    tell(f"{row.session} is called {title}")
    return Exit.DONE


def _renamed_there(target: Target, row: Row, title: str, given: Given) -> bool:
    """A daemon that has the session open, or keeps it at hand for those who look at it, writes the
    title, and they see it."""
    if not is_running(target.paths):
        return False
    try:
        _command(target, Rename(title=title), row.session, given)
    except InspectError as error:
        if row.open or error.code != "no_session":
            raise
        return False
    return True


def _let_go(target: Target, row: Row, given: Given) -> None:
    """A daemon keeps a session that was closed a moment ago at hand."""
    if is_running(target.paths):
        _command(target, Release(session=row.session), row.session, given)


def _command(target: Target, do: AnyCommand, session: str, given: Given) -> None:
    async def send() -> None:
        async with DaemonClient(
            target.paths, who=who(given), client="sessions", reconnect=False
        ) as client:
            await client.command(do, session)

    asyncio.run(send())


def _rename_closed(path: Path, title: str) -> None:
    """The last event stays what it was: who closed it."""
    log = _held(path)
    with contextlib.closing(log):
        closed = log.closed()
        now, wall = time.monotonic_ns(), time.time_ns()
        log.append(pack_event(Renamed(title=title, t_ns=now, wall_ns=wall)))
        if closed is not None:
            again = msgspec.structs.replace(closed, count=log.head, t_ns=now, wall_ns=wall)
            log.append(pack_event(again))


def _held(path: Path) -> LogWriter:
    """Its log. Another command that is renaming it is done in a moment."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return LogWriter.reopen(path)
        except LogError as error:
            if error.code != "locked" or time.monotonic() > until:
                raise
        time.sleep(0.02)


def close(arguments: list[str], given: Given) -> int:
    """`sessions close SESSION`: as `close SESSION`."""
    return control.main("close", arguments, given)


def keep(arguments: list[str], given: Given) -> int:
    """`sessions keep SESSION`: its recording stays when others are removed to make room."""
    row = _find(target_of(given), arguments[0])
    path = Path(row.file)
    if row.open and not given.off and _is_private(path):
        raise InspectError(
            f"{row.session} is private: it has no recording once it is closed",
            f"llm-inspect export {row.session} --to jsonl writes what there is now",
        )
    pin(path, on=not given.off)
    tell(f"{row.session} may be removed to make room" if given.off else f"{row.session} is kept")
    return Exit.DONE


def _is_private(path: Path) -> bool:
    with Recording.open(path) as recording:
        settings = recording.session_set()
    return settings is not None and settings.private


def remove(arguments: list[str], given: Given) -> int:
    """`sessions rm SESSION`: the recording is gone; of an open session it stays."""
    target = target_of(given)
    row = _find(target, arguments[0])
    if row.open:
        raise InspectError(
            f"{row.session} is open", f"Close it first: llm-inspect close {row.session}"
        )
    if row.kept:
        raise InspectError(
            f"{row.session} is kept",
            f"Stop keeping it first: llm-inspect sessions keep --off {row.session}",
        )
    looking = _looking_at(target, row.session)
    _let_go(target, row, given)
    path = Path(row.file)
    if row.status not in ("foreign", "newer", "damaged", "cut"):
        LogWriter.reopen(path).close()  # raises when somebody holds it
    path.unlink()
    pin(path, on=False)
    tell(f"{row.session} is removed")
    if looking:
        with contextlib.suppress(InspectError):  # it has ended meanwhile, and they with it
            _command(target, Release(session=row.session, removed=True), row.session, given)
        say(f"told who looked at it: {', '.join(looking)}")
    return Exit.DONE


def _looking_at(target: Target, session: str) -> list[str]:
    """Who follows it at its daemon, though it was closed. Who replays its file sees it go."""
    if not is_running(target.paths):
        return []
    viewers = state_of(target).viewers
    return [f"{one.who} ({one.client})" for one in viewers if session in one.sessions]


def _find(target: Target, wanted: str) -> Row:
    """The session or recording with this id, title, or unique beginning of an id."""
    if not wanted:
        raise InspectError("SESSION is empty", "Give its id, its title, or a beginning of its id")
    rows = rows_of(target)
    found = [row for row in rows if wanted in (row.session, row.title)]
    found = found or [row for row in rows if row.session.startswith(wanted.upper())]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(row.session for row in found)
        raise InspectError(f"{wanted!r} means several sessions: {names}", code="no_session")
    raise InspectError(
        f"no session {wanted!r} is here", "llm-inspect sessions list names them", code="no_session"
    )


COMMANDS: Final = {"show": show, "rename": rename, "close": close, "keep": keep, "rm": remove}
"""By verb."""
