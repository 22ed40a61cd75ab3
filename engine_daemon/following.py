"""The part of a client that follows sessions: where it is in each log, credit, parts of snapshots.

Knows the messages of a subscription; who attaches and why a link is lost is the client's.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from engine_daemon.errors import InspectError
from engine_daemon.link import Link
from engine_daemon.mending import LinkLost, LinkUp
from engine_daemon.protocol import commands as cmd

ACK_PARTS: Final = 4
"""What arrived is acknowledged when it is such a part of the credit, so that none runs out …"""
ACK_S: Final = 0.5
"""… or after so long."""

Update = cmd.StateMessage | cmd.Batch | cmd.Snapshot | cmd.Lost | cmd.Removed | LinkLost | LinkUp


class Following:
    """Sessions that are followed over a link, which may be away. `window`: bytes of credit."""

    def __init__(self, window: int) -> None:
        self._link: Link | None = None
        self._window = window
        self._following: dict[str, int] = {}
        self._parts: dict[str, list[bytes]] = {}
        self._queue: list[Update] = []
        self._unsaid: dict[str, int] = {}
        self._unsaid_bytes = 0
        self._saying: asyncio.TimerHandle | None = None
        self._arrived = asyncio.Event()
        self._failure: InspectError | None = None

    def follow(self, session: str, start: int = 0, *, snapshot: bool = False) -> None:
        """Have the session's events from `start` on come out of `updates`.

        `snapshot`: a long log may begin with one `Snapshot`, whole (`Columns.of` its bytes), and
        then the events after it.
        """
        self._following[session] = start
        self._parts.pop(session, None)
        void = [u for u in self._queue if isinstance(u, cmd.Batch) and u.session == session]
        self._queue = [u for u in self._queue if u not in void]
        if snapshot and start == 0:
            self._parts[session] = []
        self._subscribe(session, start)

    def unfollow(self, session: str) -> None:
        """Stop that."""
        self._following.pop(session, None)
        self._parts.pop(session, None)
        if self._link is not None:
            self._link.send(cmd.Unsub(session=session))

    def _subscribe(self, session: str, start: int) -> None:
        if self._link is not None:
            late = session in self._parts
            sub = cmd.Sub(session=session, start=start, win_bytes=self._window, snapshot=late)
            self._link.send(sub)

    async def updates(self) -> AsyncIterator[list[Update]]:
        """Everything that came since the last turn, in order.

        Credit for a list is given back when the next one is asked for. Raises InspectError
        (exit 4) when the link is lost and `reconnect` is off.
        """
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            updates, self._queue = self._queue, []
            if updates:
                yield updates
                self._acknowledge(updates)
            if self._failure is not None and not self._queue:
                raise self._failure

    def _acknowledge(self, updates: list[Update]) -> None:
        """Not every batch: each word costs the hub a turn, and twenty viewers share its time."""
        for batch in updates:
            if isinstance(batch, cmd.Batch):
                self._unsaid[batch.session] = batch.to
                self._unsaid_bytes += sum(len(packed) for _, packed in batch.ev)
        if self._unsaid_bytes * ACK_PARTS >= self._window:
            self._say_reached()
        elif self._unsaid and self._saying is None:
            self._saying = asyncio.get_running_loop().call_later(ACK_S, self._say_reached)

    def _say_reached(self) -> None:
        if self._saying is not None:
            self._saying.cancel()
        self._saying, self._unsaid_bytes = None, 0
        reached, self._unsaid = self._unsaid, {}
        if self._link is not None:
            for session, upto in reached.items():
                self._link.send(cmd.Ack(session=session, next=upto))

    def _snapshot(self, message: cmd.Snapshot) -> None:
        """A part; the whole goes out when the last one is there."""
        parts = self._parts.get(message.session)
        if parts is None or self._link is None:
            return
        if message.part == 0:
            parts.clear()
        if message.part != len(parts):
            return
        parts.append(message.columns)
        self._link.send(cmd.Ack(session=message.session, next=0, parts=len(parts)))
        if len(parts) == message.parts:
            del self._parts[message.session]
            self._following[message.session] = message.seq
            whole = msgspec.structs.replace(message, part=0, parts=1, columns=b"".join(parts))
            self._put(whole)

    def _batch(self, batch: cmd.Batch) -> None:
        expected = self._following.get(batch.session)
        if expected is None:
            return
        if batch.start != expected:
            if batch.session not in self._parts:  # else: of before this was followed anew
                self._subscribe(batch.session, expected)
            return
        self._following[batch.session] = batch.to
        self._parts.pop(batch.session, None)
        self._put(batch)

    def _put(self, update: Update) -> None:
        self._queue.append(update)
        self._arrived.set()
