"""Commands at a step, pending or recorded: what opens a branch, and what goes to one.

A recorded step is never changed: acting on it opens a branch there. Decides from the log alone;
`control` has checked before that the session stands and the engine is there.
"""

from typing import Protocol

from engine_daemon.hub.refusing import Rejected, log_command
from engine_daemon.hub.sessions import Session, stamp
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.values import Sampler


class Engine(Protocol):
    """What these commands need of the engine side (`workers`)."""

    def go(self, session: Session, step: int | None, cause: bytes) -> None:
        """Commit until pending at `step`."""
        ...

    def force(self, session: Session, ids: list[int], cause: bytes) -> None:
        """Commit these ids from the pending step on."""
        ...

    def resample(self, session: Session, cause: bytes) -> None:
        """Evaluate the pending distribution under the session's sampler."""
        ...

    def move(self, session: Session, cause: bytes, *, look: bool) -> None:
        """Bring the worker to the path the session stands on; `look`: and have it predict."""
        ...

    def make_row(self, session: Session, branch: int, step: int, cause: bytes) -> None:
        """Make the row of a recorded step again."""
        ...

    def vocabulary(self) -> int | None:
        """Ids the model has; None while that is not known."""
        ...

    def limit(self, session: Session) -> int | None:
        """Positions it may grow to; None where nothing bounds them."""
        ...


Aimed = cmd.Force | cmd.ForceText | cmd.SetSampler | cmd.Resample | cmd.Recompute


def place_of(session: Session, branch: int | None, step: int | None) -> tuple[int, int]:
    """The branch and step that are meant. Raises `Rejected` when there are none such."""
    columns = session.columns
    branch = columns.branch if branch is None else branch
    if not columns.has_branch(branch):
        raise Rejected("bad_arg", f"there is no branch {branch}", "Branches count from 0")
    length = len(columns.path(branch))
    at = length if step is None else step
    if not 0 <= at <= length:
        raise Rejected("bad_arg", f"branch {branch} has no step {at}; it has {length}")
    return branch, at


def target(session: Session, branch: int | None, step: int | None) -> tuple[int, int]:
    """`place_of` for what changes the session: the end of another branch is out of reach."""
    branch, at = place_of(session, branch, step)
    columns = session.columns
    if branch != columns.branch and at == len(columns.path(branch)):
        raise Rejected("bad_arg", f"the session does not stand on branch {branch}", "Switch first")
    return branch, at


def _is_pending(session: Session, branch: int, step: int) -> bool:
    """The target is the end that the session stands at; refused when nothing comes after it."""
    place = session.columns.place
    if (branch, step) != (place.branch, place.step):
        return False
    if place.kind != "pending":
        raise Rejected(
            "bad_arg", "no distribution is pending here", "Step once to get the next distribution"
        )
    return True


def _open_branch(session: Session, branch: int, step: int, cause: bytes) -> None:
    """The sampler in force goes along: the parent may have ended under another one."""
    columns = session.columns
    sampler = columns.sampler
    session.append(
        ev.Branched(
            branch=columns.next_branch,
            parent=columns.owner(branch, step),
            step=step,
            **stamp(cause),
        )
    )
    if columns.sampler != sampler:
        _log_sampler(session, sampler, columns.salt, cause)


def force(
    session: Session,
    engine: Engine,
    ids: list[int],
    command: cmd.Force | cmd.ForceText,
    who: str,
    cause: bytes,
) -> None:
    """Append ids one by one, whatever their probability."""
    vocabulary = engine.vocabulary()
    for token_id in ids:
        if token_id < 0 or (vocabulary is not None and token_id >= vocabulary):
            raise Rejected("bad_arg", f"{token_id} is no token id; the vocabulary has {vocabulary}")
    if not ids:
        raise Rejected("bad_arg", "there is nothing to append")
    branch, step = target(session, command.branch, command.step)
    pending = _is_pending(session, branch, step)
    _check_room(session, step + len(ids), engine.limit(session))
    if isinstance(command, cmd.Force):
        log_command(session, "force", who, cause, token_id=ids[0])
    else:
        log_command(session, "force_text", who, cause, goal=step + len(ids))
    if not pending:
        _open_branch(session, branch, step, cause)
        engine.move(session, cause, look=True)
    engine.force(session, ids, cause)


def _check_room(session: Session, steps: int, limit: int | None) -> None:
    positions = len(session.columns.prompt_ids) + steps
    if limit is not None and positions > limit:
        raise Rejected("context_full", f"{positions} tokens are more than the limit of {limit}")


def set_sampler(
    session: Session, engine: Engine, command: cmd.SetSampler, who: str, cause: bytes
) -> None:
    """Another sampler: at the end from there on, at a recorded step on a branch of its own."""
    branch, step = target(session, command.branch, command.step)
    at_end = (branch, step) == (session.columns.branch, len(session.columns))
    log_command(session, "set_sampler", who, cause)
    if not at_end:
        _open_branch(session, branch, step, cause)
    _log_sampler(session, command.sampler, session.columns.salt, cause)
    if not at_end:
        engine.move(session, cause, look=True)
    else:
        engine.resample(session, cause)


def resample(
    session: Session, engine: Engine, command: cmd.Resample, who: str, cause: bytes
) -> None:
    """Draw again with a salt that was never used, and append what is drawn."""
    columns = session.columns
    if columns.sampler.is_greedy:
        raise Rejected(
            "bad_arg",
            "a greedy sampler picks the same token again",
            "Set a temperature, or force another token",
        )
    branch, step = target(session, command.branch, command.step)
    pending = _is_pending(session, branch, step)
    salt = columns.last_salt + 1
    log_command(session, "resample", who, cause, goal=step + 1)
    if not pending:
        _open_branch(session, branch, step, cause)
    _log_sampler(session, session.columns.sampler, salt, cause)
    if pending:
        engine.resample(session, cause)
    else:
        engine.move(session, cause, look=True)
    engine.go(session, step + 1, cause)


def _log_sampler(session: Session, sampler: Sampler, salt: int, cause: bytes) -> None:
    place = session.columns.place
    session.append(
        ev.SamplerSet(
            sampler=sampler, salt=salt, branch=place.branch, step=place.step, **stamp(cause)
        )
    )


def switch(session: Session, engine: Engine, branch: int, who: str, cause: bytes) -> None:
    """Stand on another branch."""
    columns = session.columns
    if not columns.has_branch(branch):
        raise Rejected("bad_arg", f"there is no branch {branch}", "Branches count from 0")
    log_command(session, "switch", who, cause)
    if branch == columns.branch:
        return
    step = len(columns.path(branch))
    session.append(ev.Switched(branch=branch, step=step, **stamp(cause)))
    if session.resident:
        engine.move(session, cause, look=False)


def recompute(
    session: Session, engine: Engine, command: cmd.Recompute, who: str, cause: bytes
) -> None:
    """Make a row again; outcome `Recomputed`."""
    branch, step = place_of(session, command.branch, command.step)
    log_command(session, "recompute", who, cause)
    engine.make_row(session, branch, step, cause)
