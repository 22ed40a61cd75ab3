"""How a viewer tells the hub what arrived: seldom where little comes, in time where much does."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from engine_daemon import following
from engine_daemon.following import Following
from engine_daemon.link import Link
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.codec import decode_body, open_envelope, seal
from tests.daemons import PATIENCE_S, directories

WINDOW = 40_000
SESSION = "7ZK3M9QP"


class Hub:
    """The other end of the socket: sends batches, and keeps what it is told."""

    def __init__(self, path: Path) -> None:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.bind(f"ipc://{path}")
        self._route = b""
        self._head = 0
        self.acks: list[int] = []

    async def meet(self) -> None:
        """Whoever follows has said so."""
        self._route, *frames = await self._socket.recv_multipart()
        assert open_envelope(frames)[0].t == "sub"

    async def send(self, events: int, size: int) -> None:
        start, self._head = self._head, self._head + events
        packed = [(seq, bytes(size)) for seq in range(start, self._head)]
        batch = cmd.Batch(
            session=SESSION, start=start, to=self._head, head=self._head, durable=0, ev=packed
        )
        await self._socket.send_multipart([self._route, *seal(batch, session=SESSION)])

    async def hear(self, upto: int) -> None:
        """Until everything before `upto` is acknowledged."""
        while not self.acks or self.acks[-1] < upto:
            received = self._socket.recv_multipart()
            _, *frames = await asyncio.wait_for(received, PATIENCE_S)
            envelope, body = open_envelope(frames)
            if envelope.t == "ack":
                self.acks.append(decode_body(body, cmd.Ack).next)

    def close(self) -> None:
        self._socket.close(linger=0)
        self._context.term()


@asynccontextmanager
async def followed() -> AsyncIterator[tuple[Hub, asyncio.Queue[int]]]:
    """A hub of the test's own and a viewer, over a real socket; the queue tells what it saw."""
    shown: asyncio.Queue[int] = asyncio.Queue()
    viewer = Following(WINDOW)

    def received(message: cmd.Message) -> None:
        if isinstance(message, cmd.Batch):
            viewer._batch(message)

    async def look() -> None:
        async for updates in viewer.updates():
            for update in updates:
                if isinstance(update, cmd.Batch):
                    shown.put_nowait(update.to)

    with directories() as root:
        hub = Hub(root / "hub")
        link = viewer._link = Link(f"ipc://{root / 'hub'}", received)
        await link.connected(PATIENCE_S)
        viewer.follow(SESSION)
        looking = asyncio.create_task(look())
        try:
            await hub.meet()
            yield hub, shown
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking
            link.close()
            hub.close()


async def _until(shown: asyncio.Queue[int], upto: int) -> None:
    while await asyncio.wait_for(shown.get(), PATIENCE_S) < upto:
        pass


async def test_small_batches_are_acknowledged_together() -> None:
    async with followed() as (hub, shown):
        begun = time.monotonic()
        for number in range(30):
            await hub.send(1, 50)
            await _until(shown, number + 1)  # each was seen alone
        await hub.hear(30)
        assert len(hub.acks) <= (time.monotonic() - begun) / following.ACK_S + 1, hub.acks


async def test_credit_comes_back_before_it_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the window is acknowledged at once, however far off the time for it is."""
    monkeypatch.setattr(following, "ACK_S", 3600.0)
    async with followed() as (hub, shown):
        for number in range(1, 20):
            await hub.send(10, WINDOW // 40)
            await _until(shown, 10 * number)
            await hub.hear(10 * number)
        assert hub.acks == [10 * number for number in range(1, 20)]
        await hub.send(1, 2 * WINDOW)  # one event larger than all credit
        await hub.hear(191)
