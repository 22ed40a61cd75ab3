"""A real engine that nobody watches, and that twenty viewers watch: what a step takes.

The viewers run when nothing else wants to (`SCHED_IDLE`), and with a core left to them and the hub,
as on a machine whose model is on GPUs. Where the model takes every core that does not keep their
own CPU time out of the step: processes that use as much and watch nothing show how much it is.
Rounds alternate, so that a machine that grows warm is no difference.
"""

import asyncio
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec
import psutil

from engine_daemon.client import DaemonClient
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.values import PromptSpec
from engine_daemon.recording.reader import Recording
from tests.bench.table import Row, median
from tests.daemons import Daemon, running_daemon
from tests.faults.load import Predicted, crowds

STEPS = 60
ROUNDS = 6
CROWD = (5, 5, 5, 5)
PERIOD_S = 0.016
BUSY = """
import sys, time, msgpack
packed, share = msgpack.packb([{"ids": b"x" * 80, "p": [1.5] * 20}] * 3), float(sys.argv[1])
while True:
    begin = time.perf_counter()
    while time.perf_counter() - begin < %s * share:
        msgpack.unpackb(packed)
    time.sleep(%s * (1 - share))
"""  # for a share of the time it does what viewers do with events
Spent = dict[str, list[float]]


def run() -> list[Row]:
    """The demo model: beside the hub and the viewers, and on all cores."""
    cores = sorted(os.sched_getaffinity(0))
    with _on(cores[:1]), running_daemon("smollm2-135m", "hf") as daemon:
        _put(daemon.pid, cores[1:])
        _put(os.getpid(), cores[1:])
        apart = asyncio.run(_measure(daemon))
    with running_daemon("smollm2-135m", "hf") as daemon:
        together = asyncio.run(_measure(daemon))
    return [
        *_rows("engine on a core of its own", apart, 1.0),
        *_rows("engine on all cores", together, None),
    ]


def _rows(where: str, spent: Spent, goal: float | None) -> list[Row]:
    """The goal, in percent, is of a step from which the viewers' own CPU is kept away."""
    alone, watched, busy = (median(spent[name]) for name in ("alone", "watched", "busy"))
    more, others = (100 * (it / alone - 1) for it in (watched, busy))
    return [
        Row(f"{where}: a step, nobody watches", f"{alone * 1000:.2f} ms"),
        Row(
            f"{where}: with 20 viewers",
            f"{watched * 1000:.2f} ms ({more:+.1f} %)",
            "" if goal is None else f"≤ {goal:g} % more",
            None if goal is None else more <= goal,
        ),
        Row(f"{where}: with as much CPU used, nobody watches", f"{others:+.1f} %"),
    ]


@contextmanager
def _on(cores: list[int]) -> Iterator[None]:
    """This process, and what it starts meanwhile, on these cores."""
    before = os.sched_getaffinity(0)
    _put(os.getpid(), cores)
    try:
        yield
    finally:
        _put(os.getpid(), list(before))


def _put(pid: int, cores: list[int]) -> None:
    """All threads of a process on these cores."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), cores)


async def _measure(daemon: Daemon) -> Spent:
    async with DaemonClient(daemon.paths, client="bench") as client:
        opening = cmd.Open(prompt=PromptSpec(text=b"The history of the world is"), run_to=0)
        reply = await client.command(opening)
        assert reply.session is not None
        session, reached = reply.session, 0
        await _standing(client, session, 0)
        spent: Spent = {"alone": [], "watched": [], "busy": []}

        async def run() -> list[float]:
            nonlocal reached
            await asyncio.sleep(0.5)
            at = cmd.At(branch=0, step=reached)
            reached += STEPS
            await client.command(cmd.RunTo(step=reached), session, at)
            await _standing(client, session, reached)
            return _last_steps(daemon, session)

        for _ in range(ROUNDS):
            spent["alone"] += await run()
            with crowds(session, CROWD) as viewers:
                processes = [crowd.process for crowd in viewers]
                for process in processes:
                    os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
                began, before = time.monotonic(), _cpu_s(processes)
                spent["watched"] += await run()
                used = (_cpu_s(processes) - before) / (time.monotonic() - began)
            with _busy(used, len(CROWD)):
                spent["busy"] += await run()
    return spent


def _cpu_s(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


@contextmanager
def _busy(cores: float, count: int) -> Iterator[None]:
    """So many processes that together use so much of a core, when nothing else wants it."""
    program = [sys.executable, "-c", BUSY % (PERIOD_S, PERIOD_S), str(cores / count)]
    with ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen(program)
            stack.callback(process.wait)
            stack.callback(process.kill)
            os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
        yield


async def _standing(client: DaemonClient, session: str, step: int) -> None:
    async for _ in client.updates():
        info = next((s for s in client.state.sessions if s.session == session), None)
        if info is not None and info.status == "paused" and info.place.step == step:
            return


def _last_steps(daemon: Daemon, session: str) -> list[float]:
    """Seconds from one distribution to the next, over the last run but its beginning."""
    decoder = msgspec.msgpack.Decoder(Predicted)
    with Recording.open(daemon.paths.recordings / f"{session}.lir") as recording:
        events = [decoder.decode(packed) for _, packed in recording.events()]
    times = [event.t_ns / 1e9 for event in events if event.k == "Predicted"][-STEPS + 5 :]
    return [later - earlier for earlier, later in itertools.pairwise(times)]
