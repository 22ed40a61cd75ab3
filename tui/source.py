"""What the screen needs of whoever serves sessions: the live daemon, or a recording.

Knows the shape of the conversation; no sockets.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engine_daemon.protocol.commands import Answer, AnyCommand, At, Reply
from engine_daemon.protocol.reads import AnyAsk
from engine_daemon.protocol.state import State
from engine_daemon.protocol.viewing import LeaseWord

if TYPE_CHECKING:  # the client brings zmq: it is loaded once the first picture is on screen
    from engine_daemon.client import Update


@dataclass(frozen=True, slots=True)
class Skipped:
    """The events before `to` that did not come are lost: a recording has a hole there."""

    session: str
    to: int


class EventSource(Protocol):
    """Commands and reads out, updates in. `DaemonClient` is one, `RecordedSource` another."""

    @property
    def state(self) -> State:
        """The latest state."""
        ...

    @property
    def observes(self) -> bool:
        """The daemon lets this viewer watch and nothing else."""
        ...

    @property
    def me(self) -> bytes | None:
        """This viewer among those of the state; None where it is none of them."""
        ...

    async def command(
        self, do: AnyCommand, session: str | None = None, at: At | None = None
    ) -> Reply:
        """Accepted, or InspectError with the reply's code."""
        ...

    async def lease(self, do: LeaseWord, session: str) -> Reply:
        """Hand the right to command a session over; InspectError with the reply's code."""
        ...

    def holds(self, session: str | None) -> bool:
        """This viewer has the lease of the session."""
        ...

    async def ask(self, ask: AnyAsk, session: str | None = None) -> Answer:
        """A read; InspectError when it cannot be answered."""
        ...

    def follow(self, session: str, start: int = 0, *, snapshot: bool = False) -> None:
        """Have this session's events from `start` on among the updates; with `snapshot` a long
        one may begin with its image."""
        ...

    def unfollow(self, session: str) -> None:
        """No longer."""
        ...

    def updates(self) -> "AsyncIterator[list[Update]] | AsyncIterator[list[Update | Skipped]]":
        """Everything that arrived since the last one was taken, together."""
        ...


OpenSource = AbstractAsyncContextManager[EventSource]
"""A source that is attached while its context is entered."""
