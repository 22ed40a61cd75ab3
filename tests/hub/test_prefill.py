"""A long prompt through a real hub and worker: paused, read chunk by chunk, scored, measured."""

import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from engine_daemon.client import DaemonClient
from engine_daemon.errors import InspectError
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.values import PromptSpec, Sampler
from tests.daemons import Daemon, Watch, running_daemon

LENGTH = 4000
SLOW = "scripted:rate=8,context=9000"
"""A quarter of a second a chunk."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon(SLOW) as started:
        yield started


@asynccontextmanager
async def opened(daemon: Daemon, length: int = LENGTH, **fields: object) -> AsyncIterator[Watch]:
    """A session on `length` tokens."""
    async with DaemonClient(daemon.paths, client="test") as client:
        prompt = PromptSpec(text=b"Q" * length)
        reply = await client.command(cmd.Open(prompt=prompt, **fields))  # type: ignore[arg-type]
        assert reply.session is not None
        watch = Watch(client, reply.session)
        try:
            yield watch
            await client.command(cmd.Close(), watch.session)
        finally:
            await watch.close()


def told(watch: Watch, kind: type[ev.Event]) -> list[ev.Event]:
    events = (unpack_event(packed) for _, packed in watch.events)
    return [event for event in events if isinstance(event, kind)]


async def pause_in_prefill(watch: Watch) -> None:
    await watch.until(lambda c: c.place.kind == "prefill")
    await watch.client.command(cmd.Pause(), watch.session)
    columns = await watch.until(lambda c: c.status == "paused")
    assert columns.stop is not None
    assert (columns.stop.reason, columns.stop.pending) == ("pause", False)
    assert columns.place.kind == "prefill"
    assert 0 < columns.place.done < columns.place.total == LENGTH


@pytest.mark.parametrize("run_to", [0, 3])
async def test_pause_then_chunk_by_chunk_then_to_the_goal(daemon: Daemon, run_to: int) -> None:
    async with opened(daemon, run_to=run_to) as watch:
        await pause_in_prefill(watch)
        columns = watch.columns
        for _ in range(2):
            done = columns.place.done
            await watch.client.command(cmd.next_chunk(columns.place), watch.session, watch.at())
            await watch.until(
                lambda c, done=done: c.status == "paused" and c.place.done > done  # type: ignore[misc]
            )
            assert columns.place.done == done + cmd.CHUNK
            assert columns.stop is not None
            assert columns.stop.reason == "goal"
        again = cmd.RunTo(step=0, read=columns.place.done)
        with pytest.raises(InspectError, match="read already"):
            await watch.client.command(again, watch.session, watch.at())
        with pytest.raises(InspectError, match="no distribution"):
            await watch.client.command(cmd.Force(id=3), watch.session, watch.at())
        sampler = Sampler(greedy=False, top_k=2, seed=5)
        await watch.client.command(cmd.SetSampler(sampler=sampler), watch.session, watch.at())
        await watch.run_to(1)
        await watch.standing(1)
        assert columns.how(0) == "sampled"
        assert (columns.position[0], columns.processed[0]) == (LENGTH, LENGTH)
        chunks = [event.done for event in told(watch, ev.Prefilled)]  # type: ignore[attr-defined]
        assert chunks == list(range(cmd.CHUNK, LENGTH, cmd.CHUNK))
        assert len(told(watch, ev.Predicted)) == 2


async def test_the_state_shows_the_place(daemon: Daemon) -> None:
    async with opened(daemon) as watch:
        await watch.until(lambda c: c.place.kind == "prefill")
        await watch.until(
            lambda _c: any(
                info.session == watch.session and info.place.kind == "prefill"
                for info in watch.client.state.sessions
            )
        )
        assert watch.columns.status == "waiting"


async def test_others_go_on_while_a_prompt_is_read(daemon: Daemon) -> None:
    async with opened(daemon, 3, run_to=None) as short:
        await short.until(lambda c: len(c) >= 1)
        async with opened(daemon) as watch:
            await watch.until(lambda c: c.place.kind == "prefill")
            before = len(short.columns)
            await watch.until(lambda c: c.pending is not None)
            assert len(short.columns) >= before + 5
            assert watch.columns.pending is not None
            assert watch.columns.pending.waited_ms > 0.0


async def test_a_restart_reads_a_paused_prompt_only_when_told_to() -> None:
    with running_daemon(SLOW) as daemon:
        async with opened(daemon, score_prompt=True) as watch:
            await pause_in_prefill(watch)
            daemon.kill()
            daemon.start()
            columns = await watch.until(lambda c: c.place.kind == "waiting")
            assert columns.status == "paused"
            await watch.run_to(0)
            await watch.until(lambda c: c.pending is not None and c.status == "paused")
            assert columns.pending is not None
            assert columns.pending.processed == LENGTH
            assert len(columns.prompt_scores[0]) == LENGTH


async def test_a_branch_is_read_again_in_chunks_after_a_restart() -> None:
    with running_daemon(SLOW) as daemon:
        async with opened(daemon, 1500, run_to=2) as watch:
            await watch.standing(2)
            await watch.client.command(cmd.Force(id=65, step=1), watch.session, watch.at())
            await watch.until(lambda c: c.branch == 1 and c.status == "paused" and len(c) == 2)
            daemon.kill()
            daemon.start()
            await watch.until(lambda _c: bool(told(watch, ev.Reopened)))
            await watch.run_to(3)
            await watch.until(lambda c: c.place.kind == "prefill")
            await watch.client.command(cmd.Pause(), watch.session)
            columns = await watch.until(lambda c: c.status == "paused")
            place = columns.place
            assert (place.kind, place.branch, place.step, place.total) == ("prefill", 1, 2, 1502)
            with pytest.raises(InspectError, match="no distribution"):
                await watch.client.command(cmd.Force(id=3), watch.session, watch.at())
            await watch.run_to(3)
            await watch.until(lambda c: c.status == "paused" and len(c) == 3)
            again = next(
                e
                for e in told(watch, ev.Predicted)
                if isinstance(e, ev.Predicted) and e.restored is not None and e.processed > 1
            )
            assert (again.branch, again.step, again.processed) == (1, 2, 1502)
            assert columns.ids[1] == 65


async def test_scores_are_in_the_log_once(daemon: Daemon) -> None:
    async with opened(daemon, 600, score_prompt=True) as watch:
        columns = await watch.standing(0)
        logprobs, ranks = columns.prompt_scores
        assert len(logprobs) == len(ranks) == 600
        assert math.isnan(logprobs[0])
        assert ranks[0] == 0
        assert all(x <= 0 and rank >= 1 for x, rank in zip(logprobs[1:], ranks[1:], strict=True))
        (_,) = told(watch, ev.PromptScored)


async def test_naive_measurements_are_points_in_the_log(daemon: Daemon) -> None:
    async with opened(daemon, 40) as watch:
        await watch.standing(0)
        await watch.client.command(cmd.MeasureNaive(lengths=[8, 20]), watch.session)
        columns = await watch.until(lambda c: len(c.naive) == 2 and not c.measuring)
        assert [length for length, _ in columns.naive] == [8, 20]
        assert min(ms for _, ms in columns.naive) > 0.0
        assert columns.status == "paused"
        await watch.client.command(cmd.MeasureNaive(), watch.session)
        await watch.until(lambda c: len(c.naive) == 3)
        assert columns.naive[-1][0] == 40


async def test_naive_measurements_are_cancelled_by_a_pause(daemon: Daemon) -> None:
    async with opened(daemon, 40) as watch:
        await watch.standing(0)
        lengths = list(range(1, 41))
        await watch.client.command(cmd.MeasureNaive(lengths=lengths), watch.session)
        await watch.until(lambda c: len(c.naive) >= 1)
        with pytest.raises(InspectError, match="under way"):
            await watch.client.command(cmd.MeasureNaive(), watch.session)
        await watch.client.command(cmd.Pause(), watch.session)
        columns = await watch.until(lambda c: not c.measuring)
        await watch.run_to(1)
        await watch.standing(1)
        assert not columns.measuring
        assert len(columns.naive) < len(lengths)


@pytest.mark.parametrize("lengths", [[0], [41], [-1], [1] * 65])
async def test_lengths_that_are_none(daemon: Daemon, lengths: list[int]) -> None:
    async with opened(daemon, 40) as watch:
        await watch.standing(0)
        with pytest.raises(InspectError, match="length") as caught:
            await watch.client.command(cmd.MeasureNaive(lengths=lengths), watch.session)
        assert caught.value.code == "bad_arg"


async def test_an_engine_without_weights_says_so(daemon: Daemon) -> None:
    async with DaemonClient(daemon.paths, client="test") as client:
        with pytest.raises(InspectError, match="no weights"):
            await client.command(cmd.CheckWeights())
