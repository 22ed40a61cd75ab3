"""A command that is not accepted, and the line in the log of one that is.

Shared by the files that decide what a command may do; knows no engine.
"""

from engine_daemon.hub.sessions import Session, stamp
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.commands import At, Reply


class Rejected(Exception):
    """A command that is not accepted; `code` as in `protocol.commands.Reply`."""

    def __init__(self, code: str, message: str, hint: str = "", at: At | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.at = at

    def reply(self, command: bytes) -> Reply:
        """What the viewer who sent `command` is told."""
        return Reply(
            cmd=command,
            status="rejected",
            code=self.code,
            message=self.message,
            hint=self.hint,
            at=self.at,
        )


def log_command(
    session: Session,
    op: str,
    who: str,
    cause: bytes,
    goal: int | None = None,
    token_id: int | None = None,
    text: str = "",
) -> None:
    """Everyone sees who did what."""
    place = session.columns.place
    session.append(
        ev.Commanded(
            op=op,
            who=who,
            goal=goal,
            id=token_id,
            text=text,
            branch=place.branch,
            step=place.step,
            **stamp(cause),
        )
    )
