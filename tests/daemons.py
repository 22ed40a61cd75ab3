"""Real daemons for tests: own directories under /tmp (socket paths are short), ended by pid."""

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import psutil

from engine_daemon.client import DaemonClient
from engine_daemon.config import DaemonOptions
from engine_daemon.errors import InspectError
from engine_daemon.launch import start_daemon, stop_daemon
from engine_daemon.lookup import is_running, read_connection
from engine_daemon.paths import Paths, paths_for
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.state import State
from engine_daemon.protocol.values import PromptSpec, Sampler
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.recording.columns import Columns

PATIENCE_S = 60.0
"""How long a test waits for something that must come."""


def environment(root: Path) -> dict[str, str]:
    """Variables that put everything of a daemon under `root`."""
    return {
        "LLM_INSPECT_RUNTIME_DIR": str(root / "run"),
        "XDG_STATE_HOME": str(root / "state"),
        "XDG_CONFIG_HOME": str(root / "config"),
    }


@contextmanager
def directories() -> Iterator[Path]:
    """A short private folder, set in the environment and removed afterwards."""
    root = Path(tempfile.mkdtemp(prefix="li", dir="/tmp"))
    before = dict(os.environ)
    os.environ.update(environment(root))
    try:
        yield root
    finally:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(root, ignore_errors=True)


class Daemon:
    """One daemon with the scripted engine, in directories of its own."""

    def __init__(self, model: str = "scripted", backend: str = "scripted", **own: Any) -> None:
        engine = EngineOptions(backend=backend, model=model)
        self.options = DaemonOptions(engine=engine, **own)
        self.paths: Paths = paths_for("default")

    def start(self, wait: str = "ready") -> Self:
        """Start it and wait until the model is loaded."""
        until: Literal["hub", "ready"] = "ready" if wait == "ready" else "hub"
        outside_the_loop(lambda: start_daemon(self.paths, self.options, wait=until))
        return self

    @property
    def pid(self) -> int:
        """Of the hub."""
        return int(read_connection(self.paths)["pid"])

    def kill(self) -> None:
        """SIGKILL the hub and wait until its lock is free."""
        os.kill(self.pid, signal.SIGKILL)
        wait_for(lambda: not is_running(self.paths))

    def stop(self) -> None:
        """End it cleanly if it still runs."""
        try:
            outside_the_loop(lambda: stop_daemon(self.paths))
        except InspectError:
            self.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


@contextmanager
def running_daemon(
    model: str = "scripted", backend: str = "scripted", **own: Any
) -> Iterator[Daemon]:
    """A started daemon in fresh directories. `own`: more of `DaemonOptions`."""
    with directories(), Daemon(model, backend, **own) as daemon:
        yield daemon


def children(pid: int) -> dict[str, psutil.Process]:
    """The daemon's children by role."""
    found = {}
    for process in psutil.Process(pid).children():
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:  # it ended meanwhile
            continue
        for role in ("tokens", "worker"):
            if f"engine_daemon.{role}" in line:
                found[role] = process
    return found


def outside_the_loop(work: Callable[[], object]) -> None:
    """Run what starts an event loop of its own, from a test that is inside one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def wait_for(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Look at a condition of another process until it holds.

    Who looks by a whole command looks less often: it would take the time of what it waits for.
    """
    deadline = time.monotonic() + patience_s
    while True:
        began = time.monotonic()
        if condition():
            return
        ended = time.monotonic()
        assert ended < deadline, "it did not come true in time"
        time.sleep(min(max(0.01, 3 * (ended - began)), 0.3))


class Watch:
    """A client that follows one session into columns, and waits for what it shows."""

    def __init__(self, client: DaemonClient, session: str) -> None:
        self.client = client
        self.session = session
        self.columns = Columns()
        self.events: list[tuple[int, bytes]] = []
        self.words: list[str] = []
        self._changed = asyncio.Condition()
        self._follow()
        self._task = asyncio.create_task(self._run())

    def _follow(self) -> None:
        self.client.follow(self.session)

    def _heard(self, state: State) -> None:
        """Words for the engine, one after the other: none is passed over in `words`."""
        if self.words[-1:] != [state.engine.word]:
            self.words.append(state.engine.word)

    def _took(self, update: object) -> None:
        """Something else than events."""

    async def _run(self) -> None:
        async for updates in self.client.updates():
            async with self._changed:
                for update in updates:
                    if isinstance(update, cmd.Batch) and update.session == self.session:
                        self.columns.extend(update.ev)
                        self.events.extend(update.ev)
                    if isinstance(update, cmd.StateMessage):
                        self._heard(update.state)
                    self._took(update)
                self._changed.notify_all()

    async def until(self, condition: Callable[[Columns], bool]) -> Columns:
        """Wait until the columns (or the client's state) satisfy the condition."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: condition(self.columns) or self._task.done())
        if self._task.done():
            self._task.result()
        return self.columns

    async def standing(self, step: int) -> Columns:
        """Wait until the session stands at `step`."""
        return await self.until(
            lambda c: (
                c.place.step == step and c.status in ("paused", "ended") and c.stop is not None
            )
        )

    def at(self) -> cmd.At:
        """The guard for the place the columns show."""
        place = self.columns.place
        return cmd.At(branch=place.branch, step=place.step)

    async def run_to(self, step: int | None) -> cmd.Reply:
        """The command from where the session is."""
        return await self.client.command(cmd.RunTo(step=step), self.session, self.at())

    async def close(self) -> None:
        """Stop following."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def watching(
    paths: Paths,
    text: bytes = b"Pods are scheduled by the",
    *,
    sampler: Sampler | None = None,
    run_to: int | None = 0,
    max_steps: int | None = None,
    candidates: int = 20,
) -> AsyncIterator[Watch]:
    """Open a session and follow it from its first event."""
    async with DaemonClient(paths, client="test") as client:
        opening = cmd.Open(
            prompt=PromptSpec(text=text),
            sampler=sampler or Sampler(),
            run_to=run_to,
            max_steps=max_steps,
            candidates=candidates,
        )
        reply = await client.command(opening)
        assert reply.session is not None
        watch = Watch(client, reply.session)
        try:
            yield watch
        finally:
            await watch.close()


@asynccontextmanager
async def attached(paths: Paths, session: str) -> AsyncIterator[Watch]:
    """Another viewer of a session, from its first event."""
    async with DaemonClient(paths, client="test") as client:
        watch = Watch(client, session)
        try:
            yield watch
        finally:
            await watch.close()
