"""A session's seat in the worker: its decode loop and what the hub asked of it.

Knows nothing of other sessions and of when its turn comes.
"""

from collections import deque
from dataclasses import dataclass

from engine_daemon.protocol.worker import Halt
from engine_daemon.worker.decode import Append, DecodeSession, Prediction
from engine_daemon.worker.prefill import Chunk


@dataclass(frozen=True, slots=True)
class Run:
    """What a session is under way to. `goal` None: until something stops it. `single`: one step,
    taken only when the step before it is in the log. `read`: how far to read a long sequence."""

    goal: int | None
    cause: bytes | None
    forced: int | None = None
    single: bool = False
    read: int | None = None


class Seat:
    """A session with what is asked of it. `sent` and `seen` count its events; `stands`: it waited
    for a command since its last forward, so the next one comes after a pause."""

    def __init__(self, session: DecodeSession, opening: bytes | None) -> None:
        self.session = session
        self.loop = session.steps()
        self.opening = True
        self.stands = True
        self.opening_cause = opening
        self.run: Run | None = None
        self.halt: Halt | None = None
        self.sent = 0
        self.seen = 0
        self.stepped = 0
        self.measures: deque[int] = deque()
        self.measures_cause: bytes | None = None

    def wants(self) -> bool:
        """True when a turn would do something."""
        if self.opening:
            return True
        if self.run is None:
            return bool(self.measures)
        return not self.run.single or self.seen >= self.stepped

    def cause(self) -> bytes | None:
        """The command that what happens now goes back to."""
        if self.opening:
            return self.opening_cause
        if self.run is not None:
            return self.run.cause
        return self.measures_cause if self.measures else None

    def forward(self) -> Prediction | Chunk:
        """Advance the loop to the next distribution, or to the end of a chunk on the way there."""
        made = next(self.loop)
        assert isinstance(made, Prediction | Chunk)
        return made

    def append(self, forced: int | None) -> Append:
        """Advance the loop past pick and append."""
        made = self.loop.send(forced)
        assert isinstance(made, Append)
        return made

    def mend(self) -> None:
        """A new loop in place of one that raised; it stands where the session stands."""
        self.loop = self.session.steps()
        if self.session.pending is None:
            self.session.give_back()
        else:
            next(self.loop)
