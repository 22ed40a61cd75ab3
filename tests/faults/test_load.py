"""Many viewers on one session, some of them stopped, some of them late: L1 to L4, L6.

Short forms check that nothing is lost; the long ones (`soak`) hold the limits in time, too.
"""

import asyncio
import signal
import time
from collections.abc import Callable

import psutil
import pytest
import zmq

from engine_daemon.client import DaemonClient
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.codec import open_envelope, seal
from tests.bench.table import percentile
from tests.daemons import Daemon, directories, running_daemon, wait_for, watching
from tests.faults.load import (
    MB,
    check_complete,
    crowds,
    jitter_s,
    late_s,
    open_running,
    pause,
    sampled,
)

RATE = 1000
MODEL = f"scripted:rate={RATE},context=10000000"
CROWD = (5, 5, 5, 5)
"""Twenty viewers in four processes: with one each, two cores would measure start-up alone."""
FORMS = [2, pytest.param(60, marks=[pytest.mark.soak, pytest.mark.timeout(600)])]
LONG_S = 60
Record = Callable[[str, object], None]


@pytest.mark.fault("L1")
@pytest.mark.parametrize("seconds", FORMS)
async def test_twenty_viewers_miss_nothing(seconds: int, record_property: Record) -> None:
    with running_daemon(MODEL) as daemon:
        session = await open_running(daemon)
        alone = await _jitter_with(daemon, session, (1,), min(seconds, 20))
        with crowds(session, CROWD) as viewers:
            began = time.monotonic()
            with sampled(daemon.pid) as hub:
                await asyncio.sleep(seconds)
            ended = time.monotonic()
            head = await pause(daemon, session)
            seen = [one for crowd in viewers for one in crowd.finish(head)]
        check_complete(seen, head)
        late = percentile(late_s(seen, began, ended), 0.99)
        jitter = percentile(jitter_s(daemon, session, RATE, began, ended), 0.99)
        record_property(
            "figure",
            f"{seconds} s: 20 of 20 complete; live p99 {late * 1000:.0f} ms; jitter p99 "
            f"{jitter * 1000:.1f} ms, with one viewer {alone * 1000:.1f} ms; "
            f"hub {hub.cores:.2f} cores",
        )
        if seconds == LONG_S:
            assert late <= 0.3
            assert jitter <= alone + 0.01
            assert hub.cores <= 1.0


async def _jitter_with(
    daemon: Daemon, session: str, counts: tuple[int, ...], seconds: float
) -> float:
    with crowds(session, counts):
        began = time.monotonic()
        await asyncio.sleep(seconds)
        return percentile(jitter_s(daemon, session, RATE, began, time.monotonic()), 0.99)


@pytest.mark.fault("L2")
@pytest.mark.parametrize("seconds", FORMS)
async def test_a_viewer_stopped_for_a_while_catches_up_and_nobody_notices(
    seconds: int, record_property: Record
) -> None:
    """Half of the time for the others alone, half with one stopped meanwhile."""
    with running_daemon(MODEL) as daemon:
        session = await open_running(daemon)
        with crowds(session, (1, 5, 5, 4, 4)) as (stopped, *others):
            before = time.monotonic()
            await asyncio.sleep(seconds / 2)
            began = time.monotonic()
            with sampled(daemon.pid) as hub:
                stopped.send(signal.SIGSTOP)
                await asyncio.sleep(min(seconds / 2, 5.0))
                stopped.send(signal.SIGCONT)
                await asyncio.sleep(max(0.0, seconds / 2 - 5.0))
            ended = time.monotonic()
            head = await pause(daemon, session)
            (lagged,) = stopped.finish(head)
            seen = [one for crowd in others for one in crowd.finish(head)]
        check_complete([lagged, *seen], head)
        calm = percentile(late_s(seen, before, began), 0.99)
        late = percentile(late_s(seen, began, ended), 0.99)
        grown = (max(hub.rss) - hub.rss[0]) / MB
        record_property(
            "figure",
            f"{seconds / 2:g} s: its list complete; the others' p99 {late * 1000:.0f} ms, before "
            f"{calm * 1000:.0f} ms; hub +{grown:.1f} MB",
        )
        if seconds == LONG_S:
            assert late <= calm * 1.4
            assert grown < 20


@pytest.mark.fault("L3")
@pytest.mark.parametrize("seconds", FORMS)
async def test_a_viewer_stopped_for_ever_is_dropped(seconds: int, record_property: Record) -> None:
    """By the heartbeat of the connection, long before it would be forgotten for its silence. Half
    of the time for the others alone, half and until it is dropped with one stopped."""
    with running_daemon(MODEL) as daemon:
        session = await open_running(daemon)
        hub = psutil.Process(daemon.pid)
        with crowds(session, (5, 5, 5, 4) if seconds == LONG_S else (4,)) as others:
            count = sum(one.count for one in others) + 1
            async with DaemonClient(daemon.paths, client="test") as client:
                await _viewers(client, count)
                fds = hub.num_fds()
                with crowds(session, (1,)) as (stopped,):
                    await _viewers(client, count + 1)
                    before = time.monotonic()
                    await asyncio.sleep(seconds / 2)
                    began = time.monotonic()
                    with sampled(daemon.pid) as seen:
                        stopped.send(signal.SIGSTOP)
                        await _viewers(client, count)
                        gone = time.monotonic() - began
                        await asyncio.sleep(max(0.0, seconds / 2 - gone))
                    ended = time.monotonic()
                    wait_for(lambda: hub.num_fds() <= fds)
                    stopped.send(signal.SIGCONT)
            head = await pause(daemon, session)
            told = [one for crowd in others for one in crowd.finish(head)]
            check_complete(told, head)
        calm = percentile(late_s(told, before, began), 0.99)
        late = percentile(late_s(told, began, ended), 0.99)
        grown = (max(seen.rss) - seen.rss[0]) / MB
        record_property(
            "figure",
            f"dropped after {gone:.1f} s; {fds} descriptors as before; the others' p99 "
            f"{late * 1000:.0f} ms, before {calm * 1000:.0f} ms; hub {grown:+.1f} MB",
        )
        if seconds == LONG_S:
            assert late <= calm * 1.4
            assert grown < 20


async def _viewers(client: DaemonClient, count: int) -> None:
    """Wait until so many are attached."""
    async with asyncio.timeout(60):
        async for _ in client.updates():
            if len(client.state.viewers) == count:
                return


@pytest.mark.fault("L4")
@pytest.mark.parametrize(
    ("events", "joiners"),
    [(6000, 4), pytest.param(100_000, 20, marks=[pytest.mark.soak, pytest.mark.timeout(600)])],
)
async def test_late_joiners_see_the_whole_session(
    events: int, joiners: int, record_property: Record
) -> None:
    """Made as fast as it goes; then joined while it runs on at the usual rate."""
    with directories():
        daemon = Daemon("scripted:rate=0,context=10000000").start()
        try:
            async with watching(daemon.paths, run_to=events // 2, candidates=68) as watch:
                await watch.standing(events // 2)
                session = watch.session
            daemon.stop()
            daemon = Daemon(MODEL).start()
            async with watching(daemon.paths, run_to=0):  # warm
                pass
            async with DaemonClient(daemon.paths, client="test") as client:
                at = cmd.At(branch=0, step=events // 2)
                await client.command(cmd.RunTo(step=None), session, at)
                await asyncio.sleep(1)
                began = time.monotonic()
                await asyncio.sleep(2)
                middle = time.monotonic()
                with crowds(session, (joiners,), "snapshot") as (crowd,):
                    pass
                ended = time.monotonic()
                await client.command(cmd.Pause(), session)
            seen = crowd.told
            calm = percentile(jitter_s(daemon, session, RATE, began, middle), 0.99)
            jitter = percentile(jitter_s(daemon, session, RATE, middle, ended), 0.99)
        finally:
            daemon.stop()
    assert [(one["gapless"], one["next"] >= events) for one in seen] == [(True, True)] * joiners
    first, complete = max(one["first_s"] for one in seen), max(one["whole_s"] for one in seen)
    record_property(
        "figure",
        f"{joiners} at {events} events: image ≤ {first:.2f} s; complete ≤ {complete:.2f} s; "
        f"jitter p99 {jitter * 1000:.1f} ms, before {calm * 1000:.1f} ms",
    )
    if events == 100_000:
        assert first <= 1.0
        assert complete <= 6.0
        assert jitter <= calm + 0.01


@pytest.mark.fault("L6")
@pytest.mark.parametrize(
    "cycles", [300, pytest.param(3000, marks=[pytest.mark.soak, pytest.mark.timeout(600)])]
)
async def test_a_storm_of_connections_leaves_nothing(cycles: int, record_property: Record) -> None:
    with running_daemon() as daemon:
        async with watching(daemon.paths) as watch:
            await watch.standing(0)
            hub = psutil.Process(daemon.pid)
            fds = hub.num_fds()
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            try:
                _storm(context, daemon, cycles)
                await watch.until(lambda _: len(watch.client.state.viewers) == 1)
                first = hub.memory_info().rss
                _storm(context, daemon, cycles)
            finally:
                context.term()
            await watch.until(lambda _: len(watch.client.state.viewers) == 1)
            wait_for(lambda: hub.num_fds() <= fds)
            grown = (hub.memory_info().rss - first) / MB
            record_property(
                "figure", f"{cycles} cycles twice: {fds} descriptors as before; +{grown:.1f} MB"
            )
            assert grown < 5
            await watch.run_to(2)
            await watch.standing(2)


def _storm(context: "zmq.Context[zmq.Socket[bytes]]", daemon: Daemon, cycles: int) -> None:
    hello = seal(cmd.Hello(min=1, max=1, caps=[], client="storm", who="me"))
    for _ in range(cycles):
        viewer = context.socket(zmq.DEALER)
        viewer.setsockopt(zmq.LINGER, 0)
        viewer.connect(f"ipc://{daemon.paths.viewer_socket}")
        viewer.send_multipart(hello)
        assert viewer.poll(20_000)
        assert open_envelope(viewer.recv_multipart())[0].t == "welcome"
        viewer.close()
