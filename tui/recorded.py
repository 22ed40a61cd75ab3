"""A recording as what the screen is served from: no daemon, no engine, nothing it could change.

Tells of events that are appended while it is looked at. Knows files; no widgets.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.commands import Answer, AnyCommand, At, Batch, Reply
from engine_daemon.protocol.reads import AnyAsk, AskEvents
from engine_daemon.protocol.state import EngineState, State
from engine_daemon.protocol.viewing import LeaseWord, Removed
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.ending import is_written
from engine_daemon.recording.reader import Recording
from engine_daemon.recording.rows import NO_SEQ
from tui.source import Skipped

if TYPE_CHECKING:
    from engine_daemon.client import Update

LOOK_S: Final = 0.1
"""Between two looks whether the file has grown."""
_LATELY_S: Final = 60.0
_AT_ONCE: Final = 2048
"""Events of one update."""


def no_engine(path: Path) -> InspectError:
    """Why nothing in a replay reaches an engine, and what does."""
    return InspectError(
        "a replay has no engine", f"llm-inspect open {path} goes on from here", code="no_engine"
    )


def _nothing() -> None:
    """Nobody wants to know."""


class RecordedSource:
    """Serves one recording, folded already. Closes it when its context is left.

    `before_more` is called before events that were appended are told.
    """

    def __init__(self, recording: Recording, columns: Columns) -> None:
        self.recording = recording
        self.columns = columns
        self._next = columns.next
        self.before_more: Callable[[], None] = _nothing

    @property
    def session(self) -> str:
        """The recorded session; a name of its own where its first event is lost."""
        opened = self.columns.opened
        return opened.session if opened else self.recording.path.stem

    @property
    def growing(self) -> bool:
        """Somebody writes it still, or seems to: it has no end, and was changed lately."""
        over = self.recording.state not in ("open", "cut") or self.columns.closed
        lately = time.time() - self.recording.changed_s < _LATELY_S
        return not over and (lately or is_written(self.recording.path))

    @property
    def state(self) -> State:
        """The engine as the recording tells it; nobody is attached to anything."""
        started = self.columns.engine
        if started is None:
            return State(engine=EngineState(word="ready", backend=""), sessions=[], viewers=[])
        engine = EngineState(
            word="ready",
            engine=started.engine,
            backend=started.backend,
            model_name=started.model.name,
            model=started.model,
            synthetic=started.synthetic,
        )
        return State(engine=engine, sessions=[], viewers=[])

    @property
    def observes(self) -> bool:
        """A replay goes where its keys say."""
        return False

    @property
    def me(self) -> bytes | None:
        """Nobody is attached."""
        return None

    async def command(
        self, do: AnyCommand, session: str | None = None, at: At | None = None
    ) -> Reply:
        """Always refused."""
        raise no_engine(self.recording.path)

    async def ask(self, ask: AnyAsk, session: str | None = None) -> Answer:
        """Recorded events; whatever else would need an engine or a tokenizer is refused."""
        if not isinstance(ask, AskEvents):
            raise no_engine(self.recording.path)
        found = [(seq, self.recording.event(seq)) for seq in ask.seqs]
        return Answer(ev=[(seq, packed) for seq, packed in found if packed is not None])

    def events_of(self, columns: Columns, step: int) -> list[tuple[int, bytes]]:
        """The two events of a step, as far as they are there."""
        seqs = (columns.seq_predicted[step], columns.seq_stepped[step])
        found = [(seq, self.recording.event(seq)) for seq in seqs if seq != NO_SEQ]
        return [(seq, packed) for seq, packed in found if packed is not None]

    async def lease(self, do: LeaseWord, session: str) -> Reply:
        """Nobody commands a recording."""
        raise no_engine(self.recording.path)

    def holds(self, session: str | None) -> bool:
        """Nobody does."""
        return False

    def follow(self, session: str, start: int = 0, *, snapshot: bool = False) -> None:
        """Tell of the events from `start` on."""
        self._next = start

    def unfollow(self, session: str) -> None:
        """There is but one session here."""

    async def updates(self) -> "AsyncIterator[list[Update | Skipped]]":
        """What is appended, as long as somebody looks; once, that the file is gone."""
        told = False
        while True:
            await asyncio.sleep(LOOK_S)
            before = self.recording.next
            self.recording.follow()
            if self.recording.next < before:
                raise InspectError(
                    f"{self.recording.path} was cut or replaced while it was shown",
                    "Replay it again",
                    exit_code=Exit.RECORDING,
                    code="damaged",
                )
            while self._next < self.recording.next:
                self.before_more()
                yield self._take()
            if self.recording.removed and not told:
                told = True
                yield [Removed(session=self.session, by="")]

    def _take(self) -> "list[Update | Skipped]":
        """The next events there are; those that are lost are named."""
        taken: list[Update | Skipped] = []
        events: list[tuple[int, bytes]] = []
        for seq, packed in self.recording.events(self._next):
            if seq != self._next or len(events) == _AT_ONCE:
                break
            events.append((seq, packed))
            self._next = seq + 1
        if events:
            head = self.recording.next
            taken.append(
                Batch(
                    session=self.session,
                    start=events[0][0],
                    to=self._next,
                    head=head,
                    durable=head,
                    ev=events,
                )
            )
        else:
            self._next = next((seq for seq, _ in self.recording.events(self._next)), self._next)
            taken.append(Skipped(self.session, self._next))
        return taken

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.recording.close()
