"""A real engine that nobody watches, and that twenty viewers watch: what a step takes.

The viewers run when nothing else wants to (`SCHED_IDLE`), so their own CPU time is not the step's.
The hub's is where the model takes every core, as it does on two of them; measured also with a core
left to the hub, as on a machine whose model is on GPUs. Rounds alternate, so that a machine that
grows warm is no difference.
"""

import asyncio
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

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


def run() -> list[Row]:
    """The demo model: beside the hub and the viewers, and on all cores."""
    cores = sorted(os.sched_getaffinity(0))
    with _on(cores[:1]), running_daemon("smollm2-135m", "hf") as daemon:
        _put(daemon.pid, cores[1:])
        _put(os.getpid(), cores[1:])
        apart = asyncio.run(_measure(daemon))
    with running_daemon("smollm2-135m", "hf") as daemon:
        together = asyncio.run(_measure(daemon))
    return [*_rows("engine on a core of its own", apart), *_rows("engine on all cores", together)]


def _rows(where: str, seconds: tuple[float, float]) -> list[Row]:
    alone, watched = seconds
    more = (watched / alone - 1) * 100
    return [
        Row(f"{where}: a step, nobody watches", f"{alone * 1000:.2f} ms"),
        Row(
            f"{where}: with 20 viewers",
            f"{watched * 1000:.2f} ms ({more:+.1f} %)",
            "≤ 1 % more",
            more <= 1.0,
        ),
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


async def _measure(daemon: Daemon) -> tuple[float, float]:
    async with DaemonClient(daemon.paths, client="bench") as client:
        opening = cmd.Open(prompt=PromptSpec(text=b"The history of the world is"), run_to=0)
        reply = await client.command(opening)
        assert reply.session is not None
        session, reached = reply.session, 0
        await _standing(client, session, 0)
        spent: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(2 * ROUNDS):
            watched = turn % 2 == 1
            with crowds(session, CROWD if watched else ()) as viewers:
                for crowd in viewers:
                    os.sched_setscheduler(crowd.process.pid, os.SCHED_IDLE, os.sched_param(0))
                await asyncio.sleep(0.5)
                at = cmd.At(branch=0, step=reached)
                reached += STEPS
                await client.command(cmd.RunTo(step=reached), session, at)
                await _standing(client, session, reached)
            spent[watched] += _last_steps(daemon, session)
    return median(spent[False]), median(spent[True])


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
