"""`sessions list`.

Knows the daemon's state and the folder of recordings; changes nothing.
"""

import contextlib
import time
from pathlib import Path
from typing import Final

import msgspec

from engine_daemon.cli.options import Given
from engine_daemon.cli.output import tell
from engine_daemon.cli.table import table
from engine_daemon.cli.target import Target, state_of, target_of
from engine_daemon.errors import InspectError
from engine_daemon.lookup import is_running
from engine_daemon.protocol.codec import WireError, unpack_event
from engine_daemon.protocol.events import Predicted, Stepped, Stopped
from engine_daemon.protocol.state import SessionInfo
from engine_daemon.recording.ending import is_history
from engine_daemon.recording.folder import SUFFIX, is_pinned, recordings_in
from engine_daemon.recording.reader import Recording

CLOSED: Final = "closed"
STOPPED: Final = "open, daemon stopped"
NOT_SERVED: Final = "open, not served"
"""It was not closed, and its daemon, which runs, could not open it or has not yet."""
_LOOKED_AT: Final = 64
"""Events from the end of a recording that are looked at for its last step."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One session as it is listed. `open`: a daemon serves it now; `kept`: its recording is never
    removed to make room; `trouble`: why its log cannot be written."""

    session: str
    title: str
    status: str
    open: bool
    step: int | None
    created_ns: int
    file: str
    kept: bool = False
    trouble: str = ""


def main(given: Given) -> int:
    """`sessions list`."""
    rows = rows_of(target_of(given))
    if given.json:
        for row in rows:
            tell(msgspec.json.encode(row).decode())
    elif not rows:
        tell("no sessions yet")
    else:
        lines = [(r.session, _status(r), _step(r.step), _when(r.created_ns), r.title) for r in rows]
        tell(table(("SESSION", "STATUS", "STEP", "OPENED", "TITLE"), lines))
    return 0


def rows_of(target: Target) -> list[Row]:
    """Open sessions and recordings of a daemon, the newest first."""
    rows = [*_open(target)]
    seen = {row.session for row in rows}
    rows += [row for row in _recorded(target) if row.session not in seen]
    return sorted(rows, key=lambda row: row.created_ns, reverse=True)


def closed_session(target: Target, wanted: str) -> InspectError | None:
    """What to say of a session that no daemon has open but whose recording can go on; None where
    `wanted` means no such one. Looks at this machine's recordings only."""
    if target.paths.endpoint is not None or not wanted:
        return None
    rows = [row for row in _recorded(target) if row.status in (CLOSED, NOT_SERVED)]
    found = [row for row in rows if wanted in (row.session, row.title)]
    found = found or [row for row in rows if row.session.startswith(wanted.upper())]
    if len(found) != 1:
        return None
    (row,) = found
    return InspectError(
        f"{row.session} is {'closed' if row.status == CLOSED else 'not open'}",
        f"Go on with it: llm-inspect open {row.session}{target.option}",
        code="no_session",
    )


def _open(target: Target) -> list[Row]:
    if not is_running(target.paths):
        return []
    return [_live_row(target, info) for info in state_of(target).sessions]


def _live_row(target: Target, info: SessionInfo) -> Row:
    path = target.paths.recordings / f"{info.session}{SUFFIX}"
    return Row(
        session=info.session,
        title=info.title,
        status=info.status,
        open=True,
        step=info.place.step,
        created_ns=info.created_ns,
        file=str(path),
        kept=is_pinned(path),
        trouble=info.trouble,
    )


def _recorded(target: Target) -> list[Row]:
    runs = is_running(target.paths)
    rows = [_recorded_row(path, runs) for path in recordings_in(target.paths.recordings)]
    return [row for row in rows if row is not None]


def _recorded_row(path: Path, runs: bool) -> Row | None:
    """None when it was removed meanwhile. `runs`: its daemon does."""
    try:
        changed_ns = path.stat().st_mtime_ns
    except FileNotFoundError:
        return None
    try:
        with Recording.open(path) as recording:
            opened, status, step = recording.opened, recording.state, _last_step(recording)
            title = recording.title
    except InspectError:
        opened, status, step, title = None, "foreign", None, ""
    return Row(
        session=opened.session if opened else path.stem,
        title=title,
        status=status if status not in ("ok", "open") else _ending(path, runs),
        open=False,
        step=step,
        created_ns=opened.created_ns if opened else changed_ns,
        file=str(path),
        kept=is_pinned(path),
    )


def _ending(path: Path, runs: bool) -> str:
    """Of a sound recording that no daemon serves: over for good, or a session that its daemon opens
    again when it starts."""
    with contextlib.suppress(OSError):
        if is_history(path):
            return CLOSED
    return NOT_SERVED if runs else STOPPED


def _last_step(recording: Recording) -> int | None:
    """Where it stood at its end, as its last few events tell: nothing else is read."""
    for seq in range(recording.next - 1, max(recording.next - 1 - _LOOKED_AT, -1), -1):
        packed = recording.event(seq)
        try:
            event = None if packed is None else unpack_event(packed)
        except WireError:
            continue
        match event:
            case Stepped():
                return event.step + 1
            case Predicted() | Stopped():
                return event.step
            case _:
                continue
    return None


def _status(row: Row) -> str:
    return f"{row.status}{', not written' * bool(row.trouble)}{', kept' * row.kept}"


def _step(step: int | None) -> str:
    return "-" if step is None else str(step)


def _when(created_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(created_ns / 1e9))
