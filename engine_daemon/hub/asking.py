"""Reads of viewers: whom each is asked of, and how the answer is written.

Changes nothing and logs nothing. Knows no sockets; whoever asks hands in where the answer goes.
"""

from collections.abc import Callable
from typing import Final, assert_never

from engine_daemon.hub.sessions import Session, SessionStore
from engine_daemon.hub.workers import EngineSide
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import reads
from engine_daemon.protocol.worker import Encoded, Resolved

ANSWER_BYTES: Final = 4 * 1024 * 1024
MAX_EVENTS_ASKED: Final = 512

Put = Callable[[cmd.Answer], None]


class Asking:
    """Answers `ask` from the logs, the tokens process or the worker."""

    def __init__(self, store: SessionStore, engine: EngineSide) -> None:
        self._store = store
        self._engine = engine

    def ask(self, message: cmd.AskRequest, put: Put) -> None:
        """`put` gets the answer, now or when it comes."""
        encoder = self._engine.seats.encoder
        match message.ask:
            case reads.AskEvents(seqs=seqs):
                put(_events(self._store.get(message.session), seqs))
            case reads.AskEncode() | reads.AskCondition() if not encoder.ready:
                put(cmd.Answer(code="busy", message="the tokenizer is not loaded yet"))
            case reads.AskEncode(prompt=prompt):
                encoder.encode(prompt, lambda encoded: put(_encoded(encoded)))
            case reads.AskCondition(source=source):
                encoder.resolve([source], [], lambda resolved: put(_resolved(resolved)))
            case reads.AskStacks():
                self._engine.stacks(lambda text: put(_stacks(text)))
            case reads.AskToken() | reads.AskWhatIf() | reads.AskPreview() | reads.AskReroll():
                self._engine.reads.ask(self._store.get(message.session), message.ask, put)
            case _:
                assert_never(message.ask)


def _encoded(it: Encoded) -> cmd.Answer:
    return cmd.Answer(code=it.code, message=it.message, prompt=it.prompt)


def _resolved(it: Resolved) -> cmd.Answer:
    return cmd.Answer(code=it.code, message=". ".join(filter(None, (it.message, it.hint))))


def _stacks(text: str | None) -> cmd.Answer:
    return cmd.Answer(code="no_engine" if text is None else "", text=text)


def _events(session: Session | None, seqs: list[int]) -> cmd.Answer:
    if session is None:
        return cmd.Answer(code="gone", message="this session is not open here")
    found: list[tuple[int, bytes]] = []
    size = 0
    for seq in seqs[:MAX_EVENTS_ASKED]:
        for event in session.log.read(seq, seq + 1, 1):
            found.append(event)
            size += len(event[1])
        if size > ANSWER_BYTES:
            break
    return cmd.Answer(ev=found)
