"""What a command may do to a session, decided from its log and the engine's state.

Plain functions over sessions: whatever is refused raises `Rejected`; whatever is accepted is
logged and handed to the engine side. Knows no sockets.
"""

from typing import Final, Protocol, assert_never

from engine_daemon.hub.sessions import Session, SessionStore, stamp
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.commands import At
from engine_daemon.protocol.values import Sampler

MAX_SEED: Final = 2**64 - 1
MAX_LENGTHS: Final = 64
"""Of one `measure_naive`."""


class Rejected(Exception):
    """A command that is not accepted; `code` as in `protocol.commands.Reply`."""

    def __init__(self, code: str, message: str, hint: str = "", at: At | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.at = at


class Engine(Protocol):
    """What control needs of the engine side (`workers`)."""

    def refusal(self, session: Session) -> Rejected | None:
        """Why no command can reach the engine for this session now; None when it can."""
        ...

    def go(self, session: Session, step: int | None, cause: bytes, read: int | None = None) -> None:
        """Commit until pending at `step`, or until `read` positions are read."""
        ...

    def measure(self, session: Session, lengths: list[int], cause: bytes) -> None:
        """Measure forwards without cache over so many tokens."""
        ...

    def force(self, session: Session, token_id: int, cause: bytes) -> None:
        """Commit this id at the pending step."""
        ...

    def resample(self, session: Session, cause: bytes) -> None:
        """Evaluate the pending distribution under the session's sampler."""
        ...

    def halt(self, session: Session, cause: bytes) -> None:
        """Stand at the next pending step."""
        ...

    def drop(self, session: Session) -> None:
        """Forget the session in the worker."""
        ...

    def wanted(self, session: Session) -> None:
        """A session was opened: tokenise and place it as soon as that can be done."""
        ...

    def vocabulary(self) -> int | None:
        """Ids the model has; None while that is not known."""
        ...


def open_session(
    store: SessionStore, engine: Engine, command: cmd.Open, who: str, cause: bytes
) -> Session:
    """Create the session's log and set it on its way."""
    check_sampler(command.sampler)
    if command.candidates < 1:
        raise Rejected("bad_arg", "candidates must be 1 or more")
    for name, value in (("steps", command.max_steps), ("goal", command.run_to)):
        if value is not None and value < 0:
            raise Rejected("bad_arg", f"{name} must not be negative")
    if command.limit_tokens is not None and command.limit_tokens < 1:
        raise Rejected("bad_arg", "the limit of positions must be 1 or more")
    session = store.create(command.title or _title(command.prompt.text))
    session.opened_by = cause
    session.unsent = command.prompt
    session.goal = command.run_to
    session.append(ev.Commanded(op="open", who=who, goal=command.run_to, **stamp(cause)))
    session.append(
        ev.SessionSet(
            candidates=command.candidates,
            cache_mode=command.cache_mode,
            limit_tokens=command.limit_tokens,
            max_steps=command.max_steps,
            prompt=command.prompt,
            run_to=command.run_to,
            score_prompt=command.score_prompt,
            **stamp(cause),
        )
    )
    session.append(ev.SamplerSet(sampler=command.sampler, **stamp(cause)))
    engine.wanted(session)
    return session


def obey(
    session: Session,
    engine: Engine,
    command: cmd.AnyCommand,
    at: At | None,
    who: str,
    cause: bytes,
    now: float,
) -> None:
    """Carry out a command on an open session, or raise `Rejected`."""
    if not session.settle():
        raise Rejected("disk_full", session.stalled, "Free some space, then try again")
    match command:
        case cmd.RunTo():
            _run_to(session, engine, command, at, who, cause)
        case cmd.Pause():
            _pause(session, engine, who, cause)
        case cmd.Force(id=token_id):
            _force(session, engine, token_id, at, who, cause)
        case cmd.SetSampler(sampler=sampler):
            _set_sampler(session, engine, sampler, at, who, cause)
        case cmd.Close(by=by):
            _close(session, engine, by, who, cause, now)
        case cmd.MeasureNaive(lengths=lengths):
            _measure_naive(session, engine, lengths, who, cause)
        case cmd.Open() | cmd.StopDaemon() | cmd.CheckWeights():
            raise Rejected("bad_arg", "this command is not for a session")
        case _:
            assert_never(command)


def check_sampler(sampler: Sampler) -> None:
    """Raise `Rejected` when a value is out of its range (NaN is out of every range)."""
    checks = (
        ("temperature", 0.0 < sampler.temperature < float("inf"), "above 0"),
        ("top_k", sampler.top_k >= 0, "0 or more"),
        ("top_p", 0.0 < sampler.top_p <= 1.0, "in (0, 1]"),
        ("min_p", 0.0 <= sampler.min_p <= 1.0, "in [0, 1]"),
        ("seed", 0 <= sampler.seed <= MAX_SEED, "in 0 … 2^64-1"),
        ("repetition_penalty", 0.0 < sampler.repetition_penalty < float("inf"), "above 0"),
        ("presence_penalty", abs(sampler.presence_penalty) < float("inf"), "finite"),
        ("frequency_penalty", abs(sampler.frequency_penalty) < float("inf"), "finite"),
    )
    for name, good, rule in checks:
        if not good:
            raise Rejected("bad_arg", f"{name} must be {rule}, not {getattr(sampler, name)}")


def _title(text: bytes) -> str:
    return " ".join(text.decode("utf-8", "replace").split())


def _log(
    session: Session,
    op: str,
    who: str,
    cause: bytes,
    goal: int | None = None,
    token_id: int | None = None,
) -> None:
    place = session.columns.place
    session.append(
        ev.Commanded(
            op=op,
            who=who,
            goal=goal,
            id=token_id,
            branch=place.branch,
            step=place.step,
            **stamp(cause),
        )
    )


def _check_at(session: Session, at: At | None) -> None:
    place = session.columns.place
    here = At(branch=place.branch, step=place.step)
    if at is None:
        raise Rejected("bad_arg", "this command needs the place it is meant for", at=here)
    if at != here:
        raise Rejected(
            "stale", f"the session is at step {place.step}, the command was for {at.step}", at=here
        )


def _check_standing(session: Session, engine: Engine, at: At | None) -> None:
    """The session stands at `at` and the engine can take a command for it."""
    status = session.columns.status
    if status == "running":
        raise Rejected("busy", "the session is running", "Pause it first")
    _check_at(session, at)
    refusal = engine.refusal(session)
    if refusal is not None:
        raise refusal
    if status == "waiting":
        raise Rejected("busy", "the prompt is not read yet", "Wait for the first distribution")


def _run_to(
    session: Session, engine: Engine, do: cmd.RunTo, at: At | None, who: str, cause: bytes
) -> None:
    _check_standing(session, engine, at)
    place, step = session.columns.place, do.step
    if place.kind == "ended" and place.reason == "context":
        raise Rejected("context_full", f"the context is full at step {place.step}")
    lowest = place.step + (place.kind == "pending")
    if step is not None and step < lowest:
        raise Rejected("bad_arg", f"the session is already at step {place.step}")
    if do.read is not None and place.kind == "prefill" and do.read <= place.done:
        raise Rejected("bad_arg", f"{place.done} of {place.total} positions are read already")
    _log(session, "run_to", who, cause, goal=step)
    engine.go(session, step, cause, do.read)


def _pause(session: Session, engine: Engine, who: str, cause: bytes) -> None:
    status = session.columns.status
    reads = status == "waiting" and session.resident
    if status == "running" or reads or session.columns.measuring:
        _log(session, "pause", who, cause)
        engine.halt(session, cause)
    elif status == "waiting":
        _log(session, "pause", who, cause)
        session.goal = 0
    # Else it stands already: accepted, nothing happens.


def _measure_naive(
    session: Session, engine: Engine, lengths: list[int], who: str, cause: bytes
) -> None:
    columns = session.columns
    if columns.status == "running":
        raise Rejected("busy", "the session is running", "Pause it first")
    if columns.measuring:
        raise Rejected("busy", "measurements are under way", "Wait for them, or pause to cancel")
    refusal = engine.refusal(session)
    if refusal is not None:
        raise refusal
    if columns.status == "waiting":
        raise Rejected("busy", "the prompt is not read yet", "Wait for the first distribution")
    total = len(columns.prompt_ids) + len(columns)
    if len(lengths) > MAX_LENGTHS:
        raise Rejected("bad_arg", f"at most {MAX_LENGTHS} lengths at a time, not {len(lengths)}")
    for length in lengths:
        if not 1 <= length <= total:
            raise Rejected("bad_arg", f"a length is 1 to {total} here, not {length}")
    wanted = lengths or [total]
    _log(session, "measure_naive", who, cause, goal=len(wanted))
    engine.measure(session, wanted, cause)


def _close(session: Session, engine: Engine, by: str, who: str, cause: bytes, now: float) -> None:
    """A running session stands first, so that its log ends with a distribution."""
    if session.closing is not None:
        return
    _log(session, "close", who, cause)
    if session.columns.status == "running" and session.resident:
        session.closing = (by, cause)
        engine.halt(session, cause)
    else:
        engine.drop(session)
        session.close(by, now, cause)


def _check_pending(session: Session) -> None:
    if session.columns.place.kind != "pending":
        raise Rejected(
            "bad_arg", "no distribution is pending here", "Step once to get the next distribution"
        )


def _force(
    session: Session, engine: Engine, token_id: int, at: At | None, who: str, cause: bytes
) -> None:
    _check_standing(session, engine, at)
    _check_pending(session)
    vocabulary = engine.vocabulary()
    if token_id < 0 or (vocabulary is not None and token_id >= vocabulary):
        raise Rejected("bad_arg", f"{token_id} is no token id; the vocabulary has {vocabulary}")
    _log(session, "force", who, cause, token_id=token_id)
    engine.force(session, token_id, cause)


def _set_sampler(
    session: Session, engine: Engine, sampler: Sampler, at: At | None, who: str, cause: bytes
) -> None:
    check_sampler(sampler)
    _check_standing(session, engine, at)
    place = session.columns.place
    _log(session, "set_sampler", who, cause)
    session.append(
        ev.SamplerSet(sampler=sampler, branch=place.branch, step=place.step, **stamp(cause))
    )
    engine.resample(session, cause)
