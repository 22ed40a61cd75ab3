"""Who joins a long session late: its image first, then what came after."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from engine_daemon.client import DaemonClient
from engine_daemon.hub.late import PART_BYTES
from engine_daemon.protocol import commands as cmd
from engine_daemon.recording.columns import Columns
from tests.daemons import Daemon, Watch, running_daemon, watching
from tests.hub.test_wire import RawViewer, _hello
from tests.recording.test_image import everything

LONG = 6000


class LateWatch(Watch):
    """Begins with whatever the hub gives a late joiner."""

    images = 0

    def _follow(self) -> None:
        self.client.follow(self.session, snapshot=True)

    def _took(self, update: object) -> None:
        if isinstance(update, cmd.Snapshot):
            self.columns = Columns.of(update.columns)
            self.images += 1


@asynccontextmanager
async def late(daemon: Daemon, session: str) -> AsyncIterator[LateWatch]:
    async with DaemonClient(daemon.paths, client="late") as client:
        watch = LateWatch(client, session)
        try:
            yield watch
        finally:
            await watch.close()


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon(f"scripted:rate=0,context={4 * LONG}") as started:
        yield started


async def test_an_image_and_what_came_after_are_the_whole_session(daemon: Daemon) -> None:
    async with watching(daemon.paths, run_to=LONG) as first:
        await first.standing(LONG)
        await first.client.command(cmd.Force(id=9, step=40), first.session, first.at())
        await first.until(lambda c: c.branch == 1 and len(c) == 41 and c.status == "paused")
        await first.client.command(cmd.Note(text="odd", step=12), first.session)
        await first.client.command(cmd.Switch(branch=0), first.session, first.at())
        await first.standing(LONG)
        async with late(daemon, first.session) as second:
            await second.until(lambda c: c.next == first.columns.next)
            assert second.images == 1
            assert second.events == []
            assert everything(second.columns) == everything(first.columns)
            # Live from there on.
            await first.run_to(LONG + 500)
            await first.standing(LONG + 500)
            await second.until(lambda c: c.next == first.columns.next)
            assert everything(second.columns) == everything(first.columns)
            assert [seq for seq, _ in second.events] == list(
                range(second.events[0][0], first.columns.next)
            )
        # A moment later the image is still good enough: the rest comes as events.
        async with late(daemon, first.session) as third:
            await third.until(lambda c: c.next == first.columns.next)
            assert everything(third.columns) == everything(first.columns)


async def test_joining_while_it_runs(daemon: Daemon) -> None:
    async with watching(daemon.paths, run_to=2 * LONG) as first:
        await first.until(lambda c: len(c) > LONG // 2)
        async with late(daemon, first.session) as second:
            await second.standing(2 * LONG)
            await first.standing(2 * LONG)
            await second.until(lambda c: c.next == first.columns.next)
            assert everything(second.columns) == everything(first.columns)


async def test_a_short_session_is_told_event_by_event(daemon: Daemon) -> None:
    async with watching(daemon.paths, run_to=5) as first:
        await first.standing(5)
        async with late(daemon, first.session) as second:
            await second.standing(5)
            assert second.images == 0
            assert second.events == first.events


async def test_parts_come_as_credit_allows(daemon: Daemon) -> None:
    async with watching(daemon.paths, run_to=LONG) as first:
        await first.standing(LONG)
        viewer = RawViewer(daemon)
        viewer.send(_hello())
        viewer.until("welcome")
        viewer.send(cmd.Sub(session=first.session, start=0, win_bytes=1, snapshot=True))
        parts: list[bytes] = []
        while True:
            part = viewer.until("snapshot")
            assert isinstance(part, cmd.Snapshot)
            assert (part.part, len(part.columns) <= PART_BYTES) == (len(parts), True)
            parts.append(part.columns)
            assert [kind for kind in viewer.quiet() if kind in ("snapshot", "batch")] == []
            viewer.send(cmd.Ack(session=first.session, next=0, parts=len(parts)))
            if part.part + 1 == part.parts:
                break
        viewer.close()
        assert len(parts) > 1
        image = Columns.of(b"".join(parts))
        assert image.ids[:LONG] == first.columns.ids
