"""What a command may do to a session, decided from its log and the engine's state.

Plain functions over sessions: whatever is refused raises `Rejected`; whatever is accepted is
logged and handed to the engine side. Knows no sockets.
"""

from typing import Final, Protocol, assert_never

from engine_daemon.hub import branching
from engine_daemon.hub.breakpoints import (
    LONGEST_CONDITION,
    LONGEST_WATCHED,
    MOST_CONDITIONS,
    MOST_WATCHED,
    Breakpoints,
)
from engine_daemon.hub.refusing import Rejected, log_command
from engine_daemon.hub.renaming import rename
from engine_daemon.hub.sessions import Session, SessionStore, stamp
from engine_daemon.options import SAMPLER_RANGES
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.commands import At
from engine_daemon.protocol.packing import unpack_ints
from engine_daemon.protocol.values import PromptSpec, Sampler, Wanted

MAX_SEED: Final = 2**64 - 1
LONGEST_NOTE: Final = 500
"""Characters."""
MAX_LENGTHS: Final = 64
"""Of one `measure_naive`."""


class Engine(Protocol):
    """What control needs of the engine side (`workers`)."""

    breakpoints: Breakpoints

    def refusal(self, session: Session) -> Rejected | None:
        """Why no command can reach the engine for this session now; None when it can."""
        ...

    def go(self, session: Session, step: int | None, cause: bytes, read: int | None = None) -> None:
        """Commit until pending at `step`, or until `read` positions are read."""
        ...

    def measure(self, session: Session, lengths: list[int], cause: bytes) -> None:
        """Measure forwards without cache over so many tokens."""
        ...

    def force(self, session: Session, ids: list[int], cause: bytes) -> None:
        """Commit these ids from the pending step on."""
        ...

    def move(self, session: Session, cause: bytes, *, look: bool) -> None:
        """Bring the worker to the path the session stands on; `look`: and have it predict."""
        ...

    def make_row(self, session: Session, branch: int, step: int, cause: bytes) -> None:
        """Make the row of a recorded step again."""
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

    def limit(self, session: Session) -> int | None:
        """Positions it may grow to; None where nothing bounds them."""
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
    check_conditions(command.until)
    check_watch(command.watch)
    if command.timeout_s is not None and not 0 < command.timeout_s < float("inf"):
        raise Rejected("bad_arg", f"a timeout must be above 0, not {command.timeout_s}")
    session = store.create(command.title or _title(command.prompt))
    wanted = Wanted(until=command.until, watch=command.watch, timeout_s=command.timeout_s)
    if command.until or command.watch:
        session.unresolved = wanted
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
            wanted=wanted if wanted != Wanted() else None,
            score_prompt=command.score_prompt,
            private=command.private,
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
        case cmd.Force():
            _check_standing(session, engine, at)
            branching.force(session, engine, [command.id], command, who, cause)
        case cmd.ForceText():
            _check_standing(session, engine, at)
            branching.force(session, engine, command.ids, command, who, cause)
        case cmd.SetSampler():
            check_sampler(command.sampler)
            _check_standing(session, engine, at)
            branching.set_sampler(session, engine, command, who, cause)
        case cmd.Resample():
            _check_standing(session, engine, at)
            branching.resample(session, engine, command, who, cause)
        case cmd.Switch(branch=branch):
            _check_standing(session, engine, at)
            branching.switch(session, engine, branch, who, cause)
        case cmd.Recompute():
            _check_standing(session, engine, at)
            branching.recompute(session, engine, command, who, cause)
        case cmd.AddCondition(source=source):
            _add_condition(session, engine, source, who, cause)
        case cmd.RemoveCondition(number=number):
            _remove_condition(session, engine, number, who, cause)
        case cmd.SetWatch(texts=texts):
            check_watch(texts)
            _check_resolvable(session, engine)
            log_command(session, "set_watch", who, cause)
            engine.breakpoints.watch(session, texts, cause)
        case cmd.Close(by=by):
            _close(session, engine, by, who, cause, now)
        case cmd.MeasureNaive(lengths=lengths):
            _measure_naive(session, engine, lengths, who, cause)
        case cmd.Rename(title=title):
            rename(session, title, who, cause)
        case cmd.Note():
            _note(session, command, who, cause)
        case cmd.Open() | cmd.Reopen() | cmd.Release():
            raise Rejected("bad_arg", "this command is not for a session")
        case cmd.StopDaemon() | cmd.CheckWeights() | cmd.KillEngine():
            raise Rejected("bad_arg", "this command is not for a session")
        case _:
            assert_never(command)


def check_sampler(sampler: Sampler) -> None:
    """Raise `Rejected` when a value is out of its range (NaN is out of every range)."""
    checks = [
        ("top_k", sampler.top_k >= 0, "0 or more"),
        ("top_p", 0.0 < sampler.top_p <= 1.0, "in (0, 1]"),
        ("min_p", 0.0 <= sampler.min_p <= 1.0, "in [0, 1]"),
        ("seed", 0 <= sampler.seed <= MAX_SEED, "in 0 … 2^64-1"),
    ]
    for name, (least, most) in SAMPLER_RANGES.items():
        good = least <= getattr(sampler, name) <= most
        checks.append((name, good, f"in [{least:g}, {most:g}]"))
    for name, good, rule in checks:
        if not good:
            raise Rejected("bad_arg", f"{name} must be {rule}, not {getattr(sampler, name)}")


def check_conditions(sources: list[str]) -> None:
    """Raise `Rejected` for more conditions, or longer ones, than a session may have. What they
    say is looked at by the tokens process."""
    if len(sources) > MOST_CONDITIONS:
        raise Rejected("bad_arg", f"a session has at most {MOST_CONDITIONS} conditions")
    if any(not source.strip() or len(source) > LONGEST_CONDITION for source in sources):
        raise Rejected("bad_arg", f"a condition has 1 to {LONGEST_CONDITION} characters")


def check_watch(texts: list[bytes]) -> None:
    """Raise `Rejected` for a watch list that is too long, or has nothing in an entry."""
    if len(texts) > MOST_WATCHED:
        raise Rejected("bad_arg", f"at most {MOST_WATCHED} tokens can be watched")
    if any(not 0 < len(text) <= LONGEST_WATCHED for text in texts):
        raise Rejected("bad_arg", f"a watched text has 1 to {LONGEST_WATCHED} bytes")


def _check_resolvable(session: Session, engine: Engine) -> None:
    if not engine.breakpoints.ready:
        raise Rejected("busy", "the tokenizer is not loaded yet", "Try again in a moment")
    if session.unresolved is not None or session.resolving:
        raise Rejected("busy", "the session is being opened", "Try again in a moment")


def _add_condition(session: Session, engine: Engine, source: str, who: str, cause: bytes) -> None:
    check_conditions([source])
    if len(session.columns.conditions) >= MOST_CONDITIONS:
        raise Rejected("bad_arg", f"a session has at most {MOST_CONDITIONS} conditions")
    _check_resolvable(session, engine)
    log_command(session, "add_condition", who, cause, text=source)
    engine.breakpoints.add(session, source, cause)


def _remove_condition(
    session: Session, engine: Engine, number: int, who: str, cause: bytes
) -> None:
    if number not in session.columns.conditions:
        raise Rejected("bad_arg", f"there is no condition {number}")
    log_command(session, "remove_condition", who, cause, token_id=number)
    engine.breakpoints.remove(session, number, cause)


def _title(prompt: PromptSpec) -> str:
    text = prompt.text
    if prompt.messages:
        text = prompt.messages[-1].content
    elif prompt.ids is not None:
        return "ids " + " ".join(map(str, unpack_ints("I", prompt.ids[:80])))
    return " ".join(text.decode("utf-8", "replace").split())


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
    log_command(session, "run_to", who, cause, goal=step)
    engine.go(session, step, cause, do.read)


def _pause(session: Session, engine: Engine, who: str, cause: bytes) -> None:
    status = session.columns.status
    reads = status == "waiting" and session.resident
    if status == "running" or reads or session.columns.measuring:
        log_command(session, "pause", who, cause)
        engine.halt(session, cause)
    elif status == "waiting":
        log_command(session, "pause", who, cause)
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
    log_command(session, "measure_naive", who, cause, goal=len(wanted))
    engine.measure(session, wanted, cause)


def _note(session: Session, command: cmd.Note, who: str, cause: bytes) -> None:
    """The event is its own command line: it says who."""
    text = command.text.strip()
    if not 0 < len(text) <= LONGEST_NOTE:
        raise Rejected("bad_arg", f"a note has 1 to {LONGEST_NOTE} characters, not {len(text)}")
    branch, step = branching.place_of(session, command.branch, command.step)
    if step < len(session.columns.path(branch)):
        branch = session.columns.owner(branch, step + 1)
    session.append(ev.Noted(who=who, text=text, branch=branch, step=step, **stamp(cause)))


def _close(session: Session, engine: Engine, by: str, who: str, cause: bytes, now: float) -> None:
    """A running session stands first, so that its log ends with a distribution."""
    if session.closing is not None:
        return
    log_command(session, "close", who, cause)
    if session.columns.status == "running" and session.resident:
        session.closing = (by, cause)
        engine.halt(session, cause)
    else:
        engine.drop(session)
        session.close(by, now, cause)
