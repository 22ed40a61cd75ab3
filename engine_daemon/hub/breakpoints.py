"""Conditions and watched tokens of sessions: resolved by the tokens process, logged, handed on.

What they mean is nobody's business here: the worker asks them. Knows sessions and messages.
"""

from collections.abc import Callable
from typing import Final

from engine_daemon.hub.encoding import Encoder
from engine_daemon.hub.sessions import Session, Stamp, stamp
from engine_daemon.protocol import events as ev
from engine_daemon.protocol import worker as wire
from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.packing import pack_ints, unpack_ints
from engine_daemon.protocol.values import ConditionSpec, TokenIds

MOST_CONDITIONS: Final = 32
LONGEST_CONDITION: Final = 2000
MOST_WATCHED: Final = 16
LONGEST_WATCHED: Final = 4096


class _Place(Stamp):
    branch: int
    step: int


class Breakpoints:
    """Turns what was asked for into events; `send` reaches the worker."""

    def __init__(
        self,
        encoder: Encoder,
        send: Callable[[str, Message], bool],
        changed: Callable[[], None],
    ) -> None:
        self._encoder = encoder
        self._send = send
        self._changed = changed

    @property
    def ready(self) -> bool:
        """Texts can be turned into tokens now."""
        return self._encoder.ready

    def resolve_opening(
        self, session: Session, reject: Callable[[Session, ev.PromptRejected], None]
    ) -> None:
        """What the opening command wanted; `reject` when one of it cannot be used."""
        wish, session.unresolved = session.unresolved, None
        if wish is None:
            return
        session.resolving = True

        def done(answer: wire.Resolved) -> None:
            session.resolving = False
            if not session.open:
                return
            if answer.code:
                problem = ev.PromptRejected(
                    code=answer.code, message=answer.message, hint=answer.hint, **stamp()
                )
                reject(session, problem)
                return
            for source, literals in zip(wish.until, answer.conditions, strict=True):
                self._log_added(session, source, literals, session.opened_by)
            if wish.watch:
                session.append(ev.WatchSet(tokens=answer.watch, **stamp(session.opened_by)))

        self._encoder.resolve(wish.until, wish.watch, done)

    def add(self, session: Session, source: str, cause: bytes) -> None:
        """A condition from now on; the outcome is logged."""

        def done(answer: wire.Resolved) -> None:
            if not session.open:
                return
            if answer.code:
                session.append(
                    ev.ConditionRejected(
                        source=source,
                        code=answer.code,
                        message=answer.message,
                        hint=answer.hint,
                        **_here(session, cause),
                    )
                )
            else:
                self._log_added(session, source, answer.conditions[0], cause)
                self._tell(session, cause)
            self._changed()

        self._encoder.resolve([source], [], done)

    def remove(self, session: Session, number: int, cause: bytes) -> None:
        """This one stops nothing any more."""
        session.append(ev.ConditionRemoved(number=number, **_here(session, cause)))
        self._tell(session, cause)

    def watch(self, session: Session, texts: list[bytes], cause: bytes) -> None:
        """Another watch list; the outcome is logged."""

        def done(answer: wire.Resolved) -> None:
            if not session.open:
                return
            if answer.code:
                session.append(
                    ev.ConditionRejected(
                        source="watch",
                        code=answer.code,
                        message=answer.message,
                        hint=answer.hint,
                        **_here(session, cause),
                    )
                )
            else:
                session.append(ev.WatchSet(tokens=answer.watch, **_here(session, cause)))
                self._tell(session, cause)
            self._changed()

        self._encoder.resolve([], texts, done)

    def _log_added(
        self, session: Session, source: str, literals: list[TokenIds], cause: bytes | None
    ) -> None:
        session.append(
            ev.ConditionAdded(
                number=session.columns.next_condition,
                source=source,
                literals=literals,
                **_here(session, cause),
            )
        )

    def _tell(self, session: Session, cause: bytes) -> None:
        if session.resident:
            message = wire.SetConditions(
                session=session.id,
                conditions=in_force(session),
                watch=watched_ids(session),
                cause=cause,
            )
            self._send("worker", message)


def in_force(session: Session) -> list[ConditionSpec]:
    """The conditions that the worker asks."""
    columns = session.columns
    return [
        ConditionSpec(number=number, source=added.source, literals=added.literals)
        for number, added in columns.conditions.items()
        if number not in columns.disabled
    ]


def watched_ids(session: Session) -> bytes:
    """Every watched id once, as a u32 column."""
    watch = session.columns.watch
    tokens = [] if watch is None else watch.tokens
    return pack_ints("I", dict.fromkeys(i for token in tokens for i in unpack_ints("I", token.ids)))


def _here(session: Session, cause: bytes | None) -> _Place:
    place = session.columns.place
    return {**stamp(cause), "branch": place.branch, "step": place.step}
