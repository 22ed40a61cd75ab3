"""Reads on kept rows: which row is meant, asked of the worker, and what came back.

Nothing is logged and nothing waits: the worker answers between two steps. Knows no sockets.
"""

from collections.abc import Callable
from itertools import count
from typing import Final

from engine_daemon.hub.branching import place_of
from engine_daemon.hub.control import check_sampler
from engine_daemon.hub.refusing import Rejected
from engine_daemon.hub.sessions import Session
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import worker as wire
from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.reads import AskPreview, AskReroll, AskToken, AskWhatIf

MOST_DRAWS: Final = 100_000
MOST_TOKENS: Final = 4096
MOST_OPEN: Final = 32
Asked = AskToken | AskWhatIf | AskPreview | AskReroll


class RowReads:
    """Open questions to the worker."""

    def __init__(self, send: Callable[[str, cmd.Message], bool]) -> None:
        self._send = send
        self._numbers = count(1)
        self._open: dict[int, Callable[[cmd.Answer], object]] = {}

    def ask(
        self, session: Session | None, ask: Asked, answer: Callable[[cmd.Answer], object]
    ) -> None:
        """`answer` gets what the worker says, or why there is nothing, at once."""
        try:
            if session is None or session.columns.prompt is None:
                raise Rejected("bad_arg", "no such session, or its prompt is not read yet")
            if not session.resident:
                raise Rejected("gone", "the engine does not hold this session now; step it first")
            if len(self._open) >= MOST_OPEN:
                raise Rejected("busy", "too many reads are under way")
            question = self._question(session, ask)
        except Rejected as no:
            answer(cmd.Answer(code=no.code, message=no.message))
            return
        self._open[question.ask] = answer
        if not self._send("worker", question):
            self._open.pop(question.ask)
            answer(cmd.Answer(code="no_engine", message="the engine is not there"))

    def _question(self, session: Session, ask: Asked) -> wire.AskRow:
        columns = session.columns
        aimed = (None, None) if isinstance(ask, AskPreview) else (ask.branch, ask.step)
        branch, step = place_of(session, *aimed)
        ids = columns.path(branch).ids[:step]
        end = columns.end_of(branch)
        sampler, salt = end.sampler, end.salt
        tokens: list[int] | None = None
        n: int | None = None
        match ask:
            case AskToken():
                tokens = ask.ids
                if len(tokens) > MOST_TOKENS:
                    raise Rejected("bad_arg", f"at most {MOST_TOKENS} tokens at once")
            case AskReroll():
                n, salt = ask.n, columns.last_salt + 1
                if not 1 <= n <= MOST_DRAWS:
                    raise Rejected("bad_arg", f"1 to {MOST_DRAWS} draws, not {n}")
            case AskWhatIf() | AskPreview():
                check_sampler(ask.sampler)
                sampler = ask.sampler
        return wire.AskRow(
            ask=next(self._numbers),
            session=session.id,
            ids=pack_ints("I", ids),
            sampler=sampler,
            salt=salt,
            tokens=tokens,
            n=n,
        )

    def answered(self, found: wire.RowAnswer) -> None:
        """The worker says."""
        answer = self._open.pop(found.ask, None)
        if answer is not None:
            answer(
                cmd.Answer(
                    code=found.code,
                    message=found.message,
                    tokens=found.tokens,
                    figures=found.figures,
                )
            )

    def lost(self) -> None:
        """The worker died, and all rows with it."""
        waiting, self._open = self._open, {}
        for answer in waiting.values():
            answer(cmd.Answer(code="no_engine", message="the engine died"))
