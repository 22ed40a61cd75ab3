"""Commands about a session as a thing to keep: closing it, taking it up again, its name.

Part of the table in `commands`.
"""

from typing import Literal

from engine_daemon.protocol.command import Command


class Close(Command, frozen=True, kw_only=True, tag="close"):
    """End the session; its recording stays. `by` is written into it."""

    by: Literal["user", "run"] = "user"


class Reopen(Command, frozen=True, kw_only=True, tag="reopen"):
    """Take up a session again whose log lies among the daemon's recordings, closed or not."""

    session: str


class Release(Command, frozen=True, kw_only=True, tag="release"):
    """Let go of a closed session's log, so that its file can be changed or removed. `removed`: it
    has been: whoever follows the session is told."""

    session: str
    removed: bool = False


class Rename(Command, frozen=True, kw_only=True, tag="rename"):
    """Call the session `title`."""

    title: str
