"""A session's seat in the worker: its decode loop and what the hub asked of it.

Knows nothing of other sessions and of when its turn comes.
"""

from collections import deque
from dataclasses import dataclass, replace

from engine_daemon.protocol.worker import Halt, Move, WorkPhase
from engine_daemon.worker.breakpoints import Breakpoints, Fired
from engine_daemon.worker.decode import DecodeSession
from engine_daemon.worker.outcomes import Append, Prediction
from engine_daemon.worker.prefill import Chunk


@dataclass(frozen=True, slots=True)
class Run:
    """What a session is under way to. `goal` None: until something stops it. `single`: one step,
    taken only when the step before it is in the log. `then`: ids to force after `forced`. `read`:
    how far to read a long sequence."""

    goal: int | None
    cause: bytes | None
    forced: int | None = None
    single: bool = False
    then: tuple[int, ...] = ()
    read: int | None = None

    def after_force(self) -> "Run":
        """The same, one forced id on."""
        following = self.then[0] if self.then else None
        return replace(self, forced=following, then=self.then[1:])


class Seat:
    """A session with what is asked of it. `sent` and `seen` count its events; `stands`: it waited
    for a command since its last forward, so the next one comes after a pause.

    `fired` is a condition on a token that was told, until the session stands. `ask_here`: the
    distribution that is there is one that conditions are asked at. `known`: at the next one the
    session stood before; it is not stopped there once more. `runs`: it was opened running.
    """

    def __init__(
        self,
        session: DecodeSession,
        opening: bytes | None,
        breakpoints: Breakpoints,
        *,
        known: bool = False,
        runs: bool = False,
    ) -> None:
        self.session = session
        self.breakpoints = breakpoints
        self.fired: Fired | None = None
        self.ask_here = False
        self.known = known and session.ended is None
        self.runs = runs
        self.loop = session.steps()
        self.opening = session.ended is None
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

    def ahead(self) -> tuple[WorkPhase, int]:
        """What the next turn is about, and over how many positions at most."""
        if self.run is None and not self.opening and self.measures:
            return "measure", self.measures[0]
        positions = self.session.ahead()
        return ("decode" if positions == 1 else "prefill"), positions

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
        assert not isinstance(made, Append)
        return made

    def look(self, cause: bytes | None) -> None:
        """Tell the distribution at the end, where there is one to come."""
        if self.session.ended is None:
            self.opening, self.opening_cause = True, cause

    def reached(self) -> None:
        """A distribution came: from now on it is known whether conditions are asked at it."""
        self.ask_here = not self.known and (self.run is not None or self.runs)
        self.known = self.runs = self.opening = False

    def append(self, forced: int | None) -> Append:
        """Advance the loop past pick and append."""
        made = self.loop.send(forced)
        assert isinstance(made, Append)
        return made

    def move(self, order: Move) -> None:
        """Another sequence; a new loop that stands before its distribution. What was to be
        measured was of the one before."""
        self.session.move(order)
        self.loop = self.session.steps()
        self.opening, self.opening_cause = order.look, order.cause
        self.run = self.halt = None
        self.known, self.ask_here = True, False
        self.measures.clear()

    def mend(self) -> None:
        """A new loop in place of one that raised; it stands where the session stands."""
        self.loop = self.session.steps()
        if self.session.pending is None:
            self.session.give_back()
        else:
            next(self.loop)
