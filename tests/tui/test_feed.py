"""The feed: folds everything, paints once a frame, asks for what is looked at."""

import asyncio
import time
from itertools import pairwise

import pytest

from engine_daemon.client import LinkUp
from engine_daemon.errors import InspectError
from engine_daemon.protocol.commands import Batch, StateMessage
from engine_daemon.protocol.reads import AskEvents
from engine_daemon.recording.columns import Columns
from tests.recording.logs import UNKNOWN
from tests.tui.source import FakeSource
from tests.tui.story import SESSION, Story, paused, state
from tui.feed import FRAME_S, Feed
from tui.view import View


class Bench:
    """A feed whose paints are counted."""

    def __init__(self, story: Story) -> None:
        self.source = FakeSource(story)
        self.view = View()
        self.paints: list[float] = []
        self.folds = 0
        self.feed = Feed(self.source, self.view, self._paint, self._after)

    def _paint(self) -> None:
        self.paints.append(asyncio.get_running_loop().time())

    async def _after(self) -> None:
        self.folds += 1

    async def until(self, true: object) -> None:
        """Let it work until `true()`."""
        assert callable(true)
        async with asyncio.timeout(5):
            while not true():
                await asyncio.sleep(0.001)


@pytest.fixture
async def bench() -> Bench:
    return Bench(paused())


async def test_a_batch_is_folded_and_painted(bench: Bench) -> None:
    task = asyncio.create_task(bench.feed.run())
    bench.feed.follow(SESSION)
    await bench.until(lambda: len(bench.view.columns) == 3 and len(bench.paints) > 0)
    assert bench.view.columns.next == len(bench.source.story.log)
    assert bench.view.on_pending
    task.cancel()


async def test_paints_are_a_frame_apart(bench: Bench) -> None:
    task = asyncio.create_task(bench.feed.run())
    bench.feed.follow(SESSION)
    story = bench.source.story
    for _ in range(40):
        story.pick(9, b" x", 0.5).predict()
        bench.source.flush()
        await asyncio.sleep(0.003)
    await bench.until(lambda: bench.view.columns.next == len(story.log))
    await bench.until(lambda: len(bench.paints) >= 3)
    gaps = [b - a for a, b in zip(bench.paints, bench.paints[1:], strict=False)]
    assert min(gaps) >= FRAME_S * 0.9
    task.cancel()


async def test_a_crowd_of_events_has_frames_as_long_as_its_work_asks_for(bench: Bench) -> None:
    def paint() -> None:
        bench.paints.append(asyncio.get_running_loop().time())
        until = time.thread_time() + 0.016
        while time.thread_time() < until:
            pass

    feed = Feed(bench.source, bench.view, paint, bench._after)
    task = asyncio.create_task(feed.run())
    feed.follow(SESSION)
    story = bench.source.story

    async def shortest_gap(steps: int) -> float:
        del bench.paints[:]
        while len(bench.paints) < 6:
            for _ in range(steps):
                story.pick(9, b" x", 0.5).predict()
            bench.source.flush()
            await asyncio.sleep(0.005)
        return min(b - a for a, b in pairwise(bench.paints[1:]))

    assert await shortest_gap(steps=20) >= 0.07  # each flush is a crowd by itself
    task.cancel()


async def test_a_gap_is_asked_for_again_and_old_events_skipped(bench: Bench) -> None:
    task = asyncio.create_task(bench.feed.run())
    bench.feed.follow(SESSION)
    await bench.until(lambda: len(bench.view.columns) == 3)
    head = len(bench.source.story.log)
    event = (head + 5, bench.source.story.log[-1])
    bench.source.tell(
        Batch(session=SESSION, start=head + 5, to=head + 6, head=9, durable=9, ev=[event])
    )
    await bench.until(lambda: bench.source.followed[SESSION] == head)
    assert bench.view.columns.next == head
    task.cancel()


async def test_an_unreadable_event_is_passed_over(bench: Bench) -> None:
    task = asyncio.create_task(bench.feed.run())
    bench.feed.follow(SESSION)
    await bench.until(lambda: len(bench.view.columns) == 3)
    bench.source.story.log.append(b"\xc1")
    bench.source.story.pick(9, b" x", 0.5)
    bench.source.flush()
    await bench.until(lambda: len(bench.view.columns) == 4)
    task.cancel()


async def test_an_unknown_kind_says_the_daemon_is_newer(bench: Bench) -> None:
    task = asyncio.create_task(bench.feed.run())
    bench.feed.follow(SESSION)
    bench.source.story.log.append(b"\x81\xa1k\xa4Nova")
    bench.source.flush()
    await bench.until(lambda: bench.view.newer_daemon)
    task.cancel()


async def test_what_is_looked_at_is_asked_for_once(bench: Bench) -> None:
    task = asyncio.create_task(bench.feed.run())
    bench.feed.follow(SESSION)
    await bench.until(lambda: len(bench.view.columns) == 3)
    bench.view._packed.clear()
    bench.view.move(1)
    bench.feed.changed()
    await bench.until(lambda: bench.view.shown is not None)
    assert [type(ask) for ask in bench.source.asked] == [AskEvents]
    task.cancel()


async def test_a_refused_read_is_not_repeated_until_the_link_is_back(bench: Bench) -> None:
    task = asyncio.create_task(bench.feed.run())
    bench.feed.follow(SESSION)
    await bench.until(lambda: len(bench.view.columns) == 3)
    asked = 0

    async def gone(*_: object) -> object:
        nonlocal asked
        asked += 1
        raise InspectError("gone", code="gone")

    bench.source.ask = gone  # type: ignore[method-assign,assignment]  # a daemon that refuses
    bench.view._packed.clear()
    bench.view.move(0)
    for _ in range(3):
        bench.feed.changed()
        await asyncio.sleep(FRAME_S * 1.5)
    assert asked == 1
    bench.source.tell(LinkUp(restarted=True))
    await bench.until(lambda: asked == 2)
    task.cancel()


async def test_state_and_link(bench: Bench) -> None:
    task = asyncio.create_task(bench.feed.run())
    bench.source.tell(StateMessage(state=state(word="busy")))
    await bench.until(lambda: bench.view.engine is not None and bench.view.engine.word == "busy")
    bench.source.lose_link()
    await bench.until(lambda: not bench.view.link)
    assert bench.view.link_text == "the daemon is gone"
    assert "llm-inspect daemon start" in bench.view.link_hint
    bench.source.tell(LinkUp(restarted=False))
    await bench.until(lambda: bench.view.link)
    task.cancel()


async def test_switching_back_goes_on_where_it_was(bench: Bench) -> None:
    task = asyncio.create_task(bench.feed.run())
    bench.feed.follow(SESSION)
    await bench.until(lambda: len(bench.view.columns) == 3)
    bench.feed.follow("OTHER")
    assert SESSION not in bench.source.followed
    assert len(bench.view.columns) == 0
    bench.feed.follow(SESSION)
    assert len(bench.view.columns) == 3
    assert bench.source.followed[SESSION] == len(bench.source.story.log)
    task.cancel()


async def test_many_events_at_once_are_folded_as_one_by_one(bench: Bench) -> None:
    story = bench.source.story
    for k in range(700):
        story.pick(k % 7, b" x%d" % k, 0.5).predict()
    story.log.append(UNKNOWN)
    for _ in range(40):
        story.pick(9, b" y", 0.5).predict()
    task = asyncio.create_task(bench.feed.run())
    bench.feed.follow(SESSION)
    await bench.until(lambda: bench.view.columns.next == len(story.log))
    expected = Columns()
    expected.extend(enumerate(story.log))
    found = bench.view.columns
    assert found.ids == expected.ids
    assert found.prob == expected.prob
    assert found.seq_stepped == expected.seq_stepped
    assert found.text() == expected.text()
    assert (found.place, found.pending) == (expected.place, expected.pending)
    assert bench.view.newer_daemon
    assert bench.view.shown is not None
    task.cancel()
