"""A session's seat in the worker: its decode loop and what the hub asked of it.

Knows nothing of other sessions and of when its turn comes.
"""

from dataclasses import dataclass, replace

from engine_daemon.protocol.worker import Halt, Move
from engine_daemon.worker.breakpoints import Breakpoints, Fired
from engine_daemon.worker.decode import Append, DecodeSession, Prediction


@dataclass(frozen=True, slots=True)
class Run:
    """What a session is under way to. `goal` None: until something stops it. `single`: one step,
    taken only when the step before it is in the log. `then`: ids to force after `forced`."""

    goal: int | None
    cause: bytes | None
    forced: int | None = None
    single: bool = False
    then: tuple[int, ...] = ()

    def after_force(self) -> "Run":
        """The same, one forced id on."""
        following = self.then[0] if self.then else None
        return replace(self, forced=following, then=self.then[1:])


class Seat:
    """A session with what is asked of it. `sent` and `seen` count its events; `stands`: it waited
    for a command since its last forward, so the next one comes after a pause.

    `fired` is a condition on a token that was told, until the session stands. `ask_first`: the
    first distribution is one that conditions are asked at.
    """

    def __init__(
        self,
        session: DecodeSession,
        opening: bytes | None,
        breakpoints: Breakpoints,
        *,
        ask_first: bool = False,
    ) -> None:
        self.session = session
        self.breakpoints = breakpoints
        self.fired: Fired | None = None
        self.ask_first = ask_first
        self.loop = session.steps()
        self.opening = True
        self.stands = True
        self.opening_cause = opening
        self.run: Run | None = None
        self.halt: Halt | None = None
        self.sent = 0
        self.seen = 0
        self.stepped = 0

    def wants(self) -> bool:
        """True when a turn would do something."""
        if self.opening:
            return True
        if self.run is None:
            return False
        return not self.run.single or self.seen >= self.stepped

    def cause(self) -> bytes | None:
        """The command that what happens now goes back to."""
        if self.opening:
            return self.opening_cause
        return self.run.cause if self.run is not None else None

    def forward(self) -> Prediction:
        """Advance the loop to the next distribution."""
        made = next(self.loop)
        assert isinstance(made, Prediction)
        return made

    def append(self, forced: int | None) -> Append:
        """Advance the loop past pick and append."""
        made = self.loop.send(forced)
        assert isinstance(made, Append)
        return made

    def move(self, order: Move) -> None:
        """Another sequence; a new loop that stands before its distribution."""
        self.session.move(order)
        self.loop = self.session.steps()
        self.opening, self.opening_cause = order.look, order.cause
        self.run = self.halt = None

    def mend(self) -> None:
        """A new loop in place of one that raised; it stands where the session stands."""
        self.loop = self.session.steps()
        if self.session.pending is None:
            self.session.give_back()
        else:
            next(self.loop)
