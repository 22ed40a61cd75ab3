"""A hub's end of the inner socket, in the test's own process, with a real worker at the other."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import pytest
import zmq

from engine_daemon.protocol.codec import decode_body, open_envelope, seal, unpack_event
from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.events import Event, UnknownEvent
from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.values import Sampler
from engine_daemon.protocol.worker import (
    FROM_CHILD,
    Alive,
    ChildReady,
    DumpStacks,
    EngineOptions,
    EngineReady,
    EventOut,
    Load,
    Located,
    OpenSession,
    Pieces,
    Progress,
    Seen,
)
from engine_daemon.tokens.builtin import BuiltinTokenizer

PATIENCE_S = 20.0
"""How long anything may take before a test fails; two cores may be busy."""

M = TypeVar("M", bound=Message)
PROMPT = (300, 301, 44, 302)


def opening(session: str = "s1", **changes: object) -> OpenSession:
    """An `OpenSession` with everything plain except what is given."""
    fields: dict[str, object] = {
        "session": session,
        "branch": 0,
        "prompt_ids": pack_ints("I", PROMPT),
        "ids": b"",
        "sampler": Sampler(),
        "salt": 0,
        "candidates": 5,
        "cache_mode": "kv",
        "limit_tokens": None,
        "max_steps": None,
        "tokenize_ms": 0.25,
        "restored": False,
    }
    return OpenSession(**(fields | changes))  # type: ignore[arg-type]  # names checked by msgspec


class WorkerUnderTest:
    """One worker process and the hub's socket it talks to.

    `acknowledge` false: `Seen` is not sent by itself. `log` holds every event so far.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.acknowledge = True
        self.log: list[tuple[str, Event | UnknownEvent]] = []
        self._waiting: deque[Message] = deque()
        self._counts: dict[str, int] = {}
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(f"ipc://{folder}/e.sock")
        self._route = b""
        self.others: dict[int, bytes] = {}
        self.pulses: dict[int, bytes] = {}
        self.alive: list[Alive] = []
        self.progress: list[Progress] = []
        self._death = -1
        self.spawn()

    def spawn(self) -> None:
        """Start the process."""
        read_end, self._death = os.pipe()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "engine_daemon.worker"),
                *("--socket", f"{self.folder}/e.sock"),
                *("--death-fd", str(read_end)),
                *("--rank", "0"),
            ],
            pass_fds=(read_end,),
            stdin=subprocess.DEVNULL,
            cwd="/",
        )
        os.close(read_end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
        self._socket.close()
        self._context.term()

    def end(self) -> None:
        """End the process."""
        self.hang_up()
        self.process.kill()
        self.process.wait()

    def hang_up(self) -> None:
        """Close the death pipe, as the end of the hub does."""
        if self._death >= 0:
            os.close(self._death)
            self._death = -1

    def ended(self, within_s: float = PATIENCE_S) -> int:
        """The worker's exit status, once it has ended."""
        return self.process.wait(timeout=within_s)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this very process."""
        self.process.send_signal(number)

    def send(self, *messages: Message, rank: int = 0) -> None:
        """As the hub."""
        route = self.others[rank] if rank else self._route
        for message in messages:
            if isinstance(message, DumpStacks):  # which its pulse answers
                while rank not in self.pulses:
                    self._receive(time.monotonic() + PATIENCE_S, "pulse")
                route = self.pulses[rank]
            if isinstance(message, OpenSession):
                self._counts[message.session] = 0
            self._socket.send_multipart([route, *seal(message)])

    def expect(self, kind: type[M], within_s: float = PATIENCE_S) -> M:
        """The next message of this kind; those before it are passed over."""
        deadline = time.monotonic() + within_s
        while True:
            while self._waiting:
                message = self._waiting.popleft()
                if isinstance(message, kind):
                    return message
            self._receive(deadline, kind.__name__)

    def events_until(
        self, last: Callable[[Event], bool], within_s: float = PATIENCE_S
    ) -> list[Event]:
        """Events from now to the first that `last` is true of."""
        deadline = time.monotonic() + within_s
        seen: list[Event] = []
        while True:
            while self._waiting:
                message = self._waiting.popleft()
                if isinstance(message, EventOut):
                    event = unpack_event(message.event)
                    assert isinstance(event, Event)
                    seen.append(event)
                    if last(event):
                        return seen
            self._receive(deadline, f"the last of {seen}")

    def silent(self, for_s: float) -> bool:
        """True when nothing but signs of life arrives for so long."""
        deadline = time.monotonic() + for_s
        while not self._waiting and (left := deadline - time.monotonic()) > 0:
            if self._socket.poll(max(1, int(left * 1000))):
                self._receive(deadline + PATIENCE_S, "anything")
        return not self._waiting

    def acknowledge_all(self) -> None:
        """Send `Seen` for every event that has arrived."""
        for session, count in self._counts.items():
            self.send(Seen(session=session, next=count))

    def load(self, model: str = "scripted:rate=0") -> EngineReady:
        """Bring the scripted engine up."""
        self.start(model)
        self.expect(Located)
        self.send_pieces()
        return self.expect(EngineReady)

    def start(self, model: str = "scripted:rate=0", backend: str = "scripted") -> ChildReady:
        """Greet the worker and tell it to load."""
        ready = self.expect(ChildReady)
        self.send(Load(options=EngineOptions(backend=backend, model=model)))
        return ready

    def send_pieces(self) -> None:
        """Write the built-in table and say where it is."""
        path = self.folder / "pieces.bin"
        BuiltinTokenizer().table().write(path)
        self.send(Pieces(path=str(path)))

    def _receive(self, deadline: float, what: str) -> None:
        left = deadline - time.monotonic()
        if left <= 0 or not self._socket.poll(max(1, int(left * 1000))):
            raise AssertionError(f"the worker did not send {what}")
        route, *frames = self._socket.recv_multipart()
        envelope, body = open_envelope(frames)
        message = decode_body(body, FROM_CHILD[envelope.t])
        if isinstance(message, Alive):
            self.pulses[message.rank] = route
            self.alive.append(message)
            return
        if isinstance(message, ChildReady) and message.rank:
            self.others[message.rank] = route
            return
        if isinstance(message, Progress):
            self.progress.append(message)
        if route not in (*self.others.values(), *self.pulses.values()):
            self._route = route
        self._waiting.append(message)
        if isinstance(message, EventOut):
            self._counts[message.session] = count = self._counts.get(message.session, 0) + 1
            self.log.append((message.session, unpack_event(message.event)))
            if self.acknowledge:
                self.send(Seen(session=message.session, next=count))


@pytest.fixture
def worker() -> Iterator[WorkerUnderTest]:
    """A worker process that has just been started."""
    folder = Path(tempfile.mkdtemp(prefix="llmi-", dir="/tmp"))
    try:
        with WorkerUnderTest(folder) as started:
            yield started
    finally:
        shutil.rmtree(folder)
