"""The daemon ends, however: what was seen is on disk, nobody is left over, viewers come back.

D1, D2, D3, D5, C1.
"""

import asyncio
import os
import random
import signal
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from engine_daemon.client import DaemonClient, LinkUp
from engine_daemon.launch import start_daemon
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.codec import unpack_event
from tests.daemons import (
    Daemon,
    Watch,
    children,
    directories,
    outside_the_loop,
    running_daemon,
    wait_for,
    watching,
)
from tests.end_to_end.command import alive
from tests.hub.test_lease import lease_of

Record = Callable[[str, object], None]
FAST = "scripted:rate=2000,context=1000000"
SOAK = [pytest.mark.soak, pytest.mark.timeout(900)]


def plain_frames(raw: bytes) -> tuple[list[bytes], int]:
    """The payloads of whole frames from the beginning, and how many bytes follow them; told by the
    format's description alone."""
    payloads, at = list[bytes](), 0
    while at + 20 <= len(raw):
        magic, size, seq, crc = struct.unpack_from("<4sIQI", raw, at)
        payload = raw[at + 20 : at + 20 + size]
        if magic != b"\xf5LIR" or len(payload) < size or seq != len(payloads):
            break
        if zlib.crc32(raw[at + 4 : at + 16] + payload) != crc:
            break
        payloads.append(payload)
        at += 20 + size
    return payloads, len(raw) - at


@pytest.mark.fault("D1")
@pytest.mark.parametrize("times", [4, pytest.param(100, marks=SOAK)])
async def test_a_killed_daemon_loses_nothing_that_was_seen(
    times: int, record_property: Record
) -> None:
    """At random moments of a run, each time in a daemon that took the session up again."""
    rng, torn, seen = random.Random(times), 0, 0
    with running_daemon(FAST) as daemon:
        async with watching(daemon.paths, run_to=None) as watch:
            path = daemon.paths.recordings / f"{watch.session}.lir"
            for _ in range(times):
                await watch.until(lambda c, n=watch.columns.next: c.next > n + 20)  # type: ignore[misc]
                await asyncio.sleep(rng.random() * 0.2)
                daemon.kill()
                await watch.until(lambda _: not watch.client.connected)
                known = list(watch.events)
                payloads, rest = plain_frames(path.read_bytes())
                assert [seq for seq, _ in known] == list(range(len(known)))
                assert payloads[: len(known)] == [packed for _, packed in known]
                torn, seen = torn + (rest > 0), seen + len(known)
                daemon.start(wait="hub")
                await _run_again(watch)
        payloads, rest = plain_frames(path.read_bytes())
        lost = [e.lost_bytes for p in payloads if isinstance(e := unpack_event(p), ev.Reopened)]
        assert len(lost) == times
        assert sum(size > 0 for size in lost) == torn
    record_property("figure", f"{times} kills: 0 of {seen} events lost that were seen; {torn} torn")


async def _run_again(watch: Watch) -> None:
    """In the daemon that was started again."""
    await watch.until(lambda c: watch.client.connected and c.status == "paused")
    await watch.until(lambda _: watch.client.state.engine.word == "ready")
    await watch.run_to(None)


@pytest.mark.fault("D2")
@pytest.mark.engine
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_no_child_outlives_a_killed_daemon_with_a_real_engine(record_property: Record) -> None:
    """While torch is imported, while weights are loaded, and after: ten random moments."""
    rng, slowest = random.Random(2), 0.0
    for _ in range(10):
        with directories():
            daemon = Daemon("smollm2-135m", "hf")
            outside_the_loop(lambda d=daemon: start_daemon(d.paths, d.options, wait="hub"))  # type: ignore[misc]
            time.sleep(rng.random() * 8)
            family = [child.pid for child in psutil.Process(daemon.pid).children(recursive=True)]
            assert len(family) >= 2
            os.kill(daemon.pid, signal.SIGKILL)
            began = time.monotonic()
            wait_for(lambda f=family: not any(map(alive, f)))  # type: ignore[misc]
            slowest = max(slowest, time.monotonic() - began)
    record_property("figure", f"10 moments of a real engine: all gone within {slowest:.2f} s")
    assert slowest <= 5.0


@pytest.mark.fault("D3")
@pytest.mark.parametrize("limit_s", [None, pytest.param(6.0, marks=SOAK)])
async def test_viewers_come_back_by_themselves(
    limit_s: float | None, record_property: Record
) -> None:
    with running_daemon(FAST) as daemon:
        async with watching(daemon.paths, run_to=None) as first:
            others = [_Returning(daemon, first.session) for _ in range(3)]
            tasks = [asyncio.create_task(one.run()) for one in others]
            await first.until(lambda c: len(c) > 100 and all(one.seqs for one in others))
            epoch = first.client.welcome.ep
            daemon.kill()
            daemon.start()
            began = time.monotonic()
            await first.until(lambda _: first.client.welcome.ep != epoch)
            await first.until(lambda c: c.status == "paused")
            head = first.columns.next
            async with asyncio.timeout(60):
                await asyncio.gather(*tasks)
            took = time.monotonic() - began
            for one in others:
                assert one.seqs[:head] == list(range(head))
                assert one.came_back == [True]
            assert [seq for seq, _ in first.events[:head]] == list(range(head))
    record_property("figure", f"4 viewers back {took:.2f} s after the daemon; nothing twice")
    if limit_s is not None:
        assert took <= limit_s


class _Returning:
    """A viewer that notes every number it is given, until it has seen the session stand again."""

    def __init__(self, daemon: Daemon, session: str) -> None:
        self._paths, self._session = daemon.paths, session
        self.seqs: list[int] = []
        self.came_back: list[bool] = []

    async def run(self) -> None:
        async with DaemonClient(self._paths, client="test") as client:
            client.follow(self._session)
            async for updates in client.updates():
                for update in updates:
                    match update:
                        case cmd.Batch():
                            self.seqs += [seq for seq, _ in update.ev]
                            kinds = {type(unpack_event(packed)) for _, packed in update.ev}
                            if ev.Stopped in kinds and self.came_back:
                                return
                        case LinkUp(restarted=restarted):
                            self.came_back.append(restarted)
                        case _:
                            pass


@pytest.mark.fault("D5")
@pytest.mark.soak
@pytest.mark.parametrize("state", ["loading", "running", "paused", "prefill"])
async def test_sigterm_is_quick_in_every_state(state: str, record_property: Record) -> None:
    model = "scripted:load_ms=600000" if state == "loading" else "scripted:rate=200"
    with directories():
        daemon = Daemon(model).start(wait="hub")
        text = b"a b c d " * (100_000 if state == "prefill" else 1)
        async with watching(daemon.paths, text, run_to=None if state == "running" else 0) as watch:
            if state != "loading":
                await watch.until(lambda c: c.prompt is not None)
            path = daemon.paths.recordings / f"{watch.session}.lir"
            family = [daemon.pid, *(child.pid for child in children(daemon.pid).values())]
            os.kill(daemon.pid, signal.SIGTERM)
            began = time.monotonic()
            await asyncio.to_thread(wait_for, lambda: not any(map(alive, family)))
            took = time.monotonic() - began
        payloads, rest = plain_frames(path.read_bytes())
        assert isinstance(unpack_event(payloads[-1]), ev.Closed)
        assert rest == 0
    record_property("figure", f"{state}: {took:.2f} s")
    assert took <= 4.0


# Clocks -------------------------------------------------------------------------------------------


@contextmanager
def shifted_clock() -> Iterator[Callable[[float], None]]:
    """Daemons started inside have a wall clock that is off by what is told."""
    with directories() as root:
        file = root / "clock"
        os.environ["LLM_INSPECT_TEST_CLOCK"] = str(file)
        injected = str(Path(__file__).parent / "injected")
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [injected, *filter(None, [os.environ.get("PYTHONPATH")])]
        )

        def shift(seconds: float) -> None:
            new = file.with_suffix(".new")
            new.write_text(str(seconds))
            new.replace(file)

        shift(0)
        yield shift


@pytest.mark.fault("C1")
@pytest.mark.parametrize("seconds", [3, pytest.param(30, marks=SOAK)])
async def test_a_wall_clock_that_jumps_changes_nothing(
    seconds: int, record_property: Record
) -> None:
    """An hour on, an hour back, then a second back each tenth of one: longer than a lease lasts in
    the long form. Order, leases and the rate are those of the monotonic clock."""
    with shifted_clock() as shift, Daemon("scripted:rate=200,context=100000") as daemon:
        async with watching(daemon.paths, run_to=None) as watch:
            await watch.until(lambda c: len(c) > 10)
            await watch.until(lambda _: lease_of(watch)[0] > 0)
            number = lease_of(watch)[0]
            began = time.monotonic()
            steps = len(watch.columns)
            back = 0.0
            for jump in (3600.0, -3600.0, 0.0):
                shift(jump)
                known = len(watch.columns)
                await watch.until(lambda c, n=known: len(c) > n + 20)  # type: ignore[misc]
            while time.monotonic() - began < seconds:
                back -= 1.0
                shift(back)
                await asyncio.sleep(0.1)
            rate = (len(watch.columns) - steps) / (time.monotonic() - began)
            assert lease_of(watch) == (number, watch.client._who)
            assert watch.client.connected
            await watch.client.command(cmd.Pause(), watch.session)
            await watch.until(lambda c: c.status == "paused")
            await watch.run_to(len(watch.columns) + 1)
            events = [unpack_event(packed) for _, packed in watch.events]
        logged = [e for e in events if isinstance(e, ev.Event)]
        worker = [e.t_ns for e in logged if isinstance(e, ev.Predicted | ev.Stepped)]
        assert worker == sorted(worker)
        wall = [e.wall_ns for e in logged if isinstance(e, ev.Predicted)]
        assert wall != sorted(wall)  # the clock did step back
        assert max(wall) - min(wall) > 3600e9
        stops = [e.reason for e in logged if isinstance(e, ev.Stopped)]
        assert stops == ["pause"]
    record_property("figure", f"{seconds} s: {rate:.0f} steps/s of 100; lease kept; in order")
