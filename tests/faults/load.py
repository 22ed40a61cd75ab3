"""What the tests of load share: crowds of viewers, the hub sampled, the engine's jitter."""

import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import psutil

from engine_daemon.client import DaemonClient
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.reads import AskEvents
from engine_daemon.protocol.values import PromptSpec
from engine_daemon.recording.reader import Recording
from tests.bench.table import percentile
from tests.daemons import Daemon

CANDIDATES: Final = 68
"""So many make an event 1.15 kB in the mean."""
SAMPLE_S: Final = 0.2
MB: Final = 1_000_000


class Crowd:
    """Viewers in one process of their own."""

    def __init__(self, session: str, count: int, how: str = "count") -> None:
        self.told: list[dict[str, Any]] = []
        self.count = count
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.viewers", session, str(count), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> Any:
        """The next thing it tells."""
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        assert text, f"the viewers ended with {self._process.wait()}"
        return json.loads(text)

    def send(self, number: signal.Signals) -> None:
        """A signal to the process."""
        self._process.send_signal(number)

    @property
    def process(self) -> psutil.Process:
        """To be sampled."""
        return psutil.Process(self._process.pid)

    def finish(self, head: int) -> list[dict[str, Any]]:
        """Let them come to `head`; what each saw."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{head}\n")
        self._process.stdin.flush()
        found: list[dict[str, Any]] = self.line()
        self._process.wait()
        return found

    def end(self) -> None:
        """Kill it if it is still there."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def crowds(session: str, counts: Sequence[int], how: str = "count") -> Iterator[list[Crowd]]:
    """Processes with so many viewers each, all following."""
    made: list[Crowd] = []
    try:
        made.extend(Crowd(session, count, how) for count in counts)
        for crowd in made:
            first = crowd.line()
            if isinstance(first, list):  # late joiners tell when they are through
                crowd.told = first
        yield made
    finally:
        for crowd in made:
            crowd.end()


@dataclass(slots=True)
class Sampler:
    """Memory, descriptors and CPU of a process, five times a second."""

    process: psutil.Process
    rss: list[int] = field(default_factory=list)
    fds: list[int] = field(default_factory=list)
    cpu_s: float = 0.0
    wall_s: float = 0.0

    @property
    def cores(self) -> float:
        """How many of them it used."""
        return self.cpu_s / self.wall_s


@contextmanager
def sampled(pid: int) -> Iterator[Sampler]:
    """Sample it meanwhile."""
    sampler, over = Sampler(psutil.Process(pid)), threading.Event()

    def look() -> None:
        sampler.rss.append(sampler.process.memory_info().rss)
        sampler.fds.append(sampler.process.num_fds())

    def run() -> None:
        while not over.wait(SAMPLE_S):
            look()

    thread = threading.Thread(target=run)
    look()
    began, before = time.monotonic(), sum(sampler.process.cpu_times()[:2])
    thread.start()
    try:
        yield sampler
    finally:
        over.set()
        thread.join()
        look()
        sampler.cpu_s = sum(sampler.process.cpu_times()[:2]) - before
        sampler.wall_s = time.monotonic() - began


class Predicted(msgspec.Struct):
    """Kind and time of an event."""

    k: str
    t_ns: int


def jitter_s(
    daemon: Daemon, session: str, rate: int, since_s: float, until_s: float
) -> list[float]:
    """How much later than scheduled each forward between two moments was done.

    The schedule is the scripted engine's own: a step each `2 / rate` seconds; one that is 50 ms
    behind begins a new one.
    """
    decoder = msgspec.msgpack.Decoder(Predicted)
    with Recording.open(daemon.paths.recordings / f"{session}.lir") as recording:
        events = [decoder.decode(packed) for _, packed in recording.events()]
    times = [e.t_ns / 1e9 for e in events if e.k == "Predicted"]
    times = [t for t in times if since_s <= t <= until_s]
    due, late = times[0], [0.0]
    for earlier, now in itertools.pairwise(times):
        due = max(due, earlier - 0.05) + 2 / rate
        late.append(now - due)
    least = percentile(late, 0.01)
    return [max(0.0, one - least) for one in late]


async def open_running(daemon: Daemon, candidates: int = CANDIDATES) -> str:
    """A session that runs on and on, whoever looks."""
    async with DaemonClient(daemon.paths, client="test") as client:
        opening = cmd.Open(
            prompt=PromptSpec(text=b"on and on"),
            run_to=None,
            max_steps=10**7,
            candidates=candidates,
        )
        reply = await client.command(opening)
        assert reply.session is not None
        return reply.session


async def pause(daemon: Daemon, session: str) -> int:
    """Stop it; how long its log is then."""
    async with DaemonClient(daemon.paths, client="test") as client:
        await client.command(cmd.Pause(), session)
        async for _ in client.updates():
            info = next(s for s in client.state.sessions if s.session == session)
            if info.status == "paused" and await whole(client, session, info.head):
                return info.head
    raise AssertionError("the daemon went away")


async def whole(client: DaemonClient, session: str, head: int) -> bool:
    """Nothing comes any more after what the state told."""
    answer = await client.ask(AskEvents(seqs=[head - 1]), session)
    kinds = [type(unpack_event(packed)).__name__ for _, packed in answer.ev or []]
    return kinds == ["Stopped"]


def late_s(viewers: Sequence[dict[str, Any]], since_s: float, until_s: float) -> list[float]:
    """From the making of an event to its arrival, over all viewers."""
    return [
        late for viewer in viewers for born, late in viewer["late"] if since_s <= born <= until_s
    ]


def check_complete(viewers: Sequence[dict[str, Any]], head: int) -> None:
    """Each has 0 to head - 1, in order, once."""
    assert [v["gapless"] for v in viewers] == [True] * len(viewers)
    assert {(v["next"], v["events"]) for v in viewers} == {(head, head)}
