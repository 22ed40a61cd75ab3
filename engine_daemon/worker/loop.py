"""The worker's conversation with the hub: loading, then messages and turns until the hub is gone.

The only file of the worker with a socket. What a message does to a session stands in `turns`.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final, NoReturn, TypeVar

import zmq

from engine_daemon import __version__
from engine_daemon.errors import Exit, InspectError
from engine_daemon.frames import receive
from engine_daemon.protocol.codec import WireError, decode_body, open_envelope, seal
from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.worker import (
    TO_CHILD,
    ChildReady,
    EngineOptions,
    EngineReady,
    Load,
    LoadFailed,
    Located,
    Pieces,
    Progress,
    SumWeights,
    WeightsSummed,
)
from engine_daemon.worker import host_memory
from engine_daemon.worker.backends import locate, make_backend
from engine_daemon.worker.backends.base import Backend, ChecksTokenizer, HasWeights
from engine_daemon.worker.budget import limit_of
from engine_daemon.worker.engine import Engine
from engine_daemon.worker.kept_rows import KeptRows, rows_limit
from engine_daemon.worker.pulse import Pulse
from engine_daemon.worker.ranks.leader import Leader
from engine_daemon.worker.ranks.wire import Channel, Order, give_up
from engine_daemon.worker.telling import one_line
from engine_daemon.worker.turns import Turns

_LINGER_MS: Final = 2000
_PROGRESS_S: Final = 0.05
"""Shortest time between two reports of one stage."""

M = TypeVar("M", bound=Message)

_log: Final = logging.getLogger(__name__)


class Link:
    """The socket to the hub, with what has arrived and is not taken yet."""

    def __init__(self, socket_path: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.LINGER, _LINGER_MS)
        self._socket.connect(f"ipc://{socket_path}")
        self._inbox: deque[Message] = deque()
        self._ids = count(1)

    def send(self, message: Message) -> None:
        """Hand over to the hub."""
        self._socket.send_multipart(seal(message, id=next(self._ids)))

    def coming(self) -> list[Message]:
        """All that has arrived and is not taken, left where it is."""
        while True:
            try:
                frames = receive(self._socket)
            except zmq.Again:
                return list(self._inbox)
            self._arrived(frames)

    def take(self, *, wait: bool) -> list[Message]:
        """All that has arrived; with `wait`, at least one message."""
        while not self.coming() and wait:
            self._socket.poll()
        taken = list(self._inbox)
        self._inbox.clear()
        return taken

    def take_one(self, kind: type[M]) -> M:
        """Wait for a message of this kind; others stay for later."""
        while True:
            for message in self.coming():
                if isinstance(message, kind):
                    self._inbox.remove(message)
                    return message
            self._socket.poll()

    def close(self) -> None:
        """Leave; what was sent still goes out."""
        self._socket.close()
        self._context.term()

    def _arrived(self, frames: list[bytes]) -> None:
        try:
            envelope, body = open_envelope(frames)
            kind = TO_CHILD.get(envelope.t)
            if kind is None:
                raise WireError("bad_frames", f"unknown message {envelope.t!r}")
            message = decode_body(body, kind)
        except WireError as error:
            _log.error("from the hub: %s", error.message)
            return
        self._inbox.append(message)


class ProgressReport:
    """Tells the hub how loading goes, not more often than anybody can read."""

    def __init__(self, link: Link, pulse: Pulse) -> None:
        self._link = link
        self._pulse = pulse
        self._stage = ""
        self._told = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """A new stage and the end of one are always told."""
        self._pulse.beat()
        now = time.monotonic()
        over = total > 0 and done >= total
        if stage == self._stage and not over and now - self._told < _PROGRESS_S:
            return
        self._stage, self._told = stage, now
        self._link.send(Progress(stage=stage, done=done, total=total))


def run(socket_path: str, rank: int, peers: Sequence[int] = ()) -> int:
    """Be a worker; returns the exit status when loading failed, else never.

    `peers`: sockets to the other ranks, or of a rank that follows the one to rank 0.
    """
    link, pulse = Link(socket_path), Pulse(rank)
    link.send(ChildReady(role="worker", version=__version__, pid=os.getpid(), rank=rank))
    pulse.start(socket_path)
    if rank:
        follow(rank, peers[0], pulse)
    leader = Leader(peers, Path(socket_path).parent) if peers else None
    try:
        engine = load(link, leader, pulse)
    except InspectError as error:
        failed = LoadFailed(code=error.code, message=error.message, hint=error.hint)
    except Exception as error:  # noqa: BLE001  edge of the process: the hub must hear of it
        _log.exception("loading failed")
        failed = LoadFailed(
            code="engine",
            message=f"the model cannot be loaded: {one_line(error)}",
            hint="The whole story is in `llm-inspect daemon logs`",
        )
    else:
        serve(link, engine, pulse)
    link.send(failed)
    link.close()
    return Exit.MODEL


def follow(rank: int, peer: int, pulse: Pulse) -> NoReturn:
    """Be a rank that follows."""
    try:
        from engine_daemon.worker.ranks.following import Follower
    except ModuleNotFoundError as error:  # rank 0 finds it too, and says it to the hub
        give_up(f"{error.name} is not installed")
    Follower(Channel(peer, Order), rank, pulse).run()


def backend_of(options: EngineOptions, leader: Leader | None) -> Backend:
    """What is to load the model. Raises InspectError when there is none for so many ranks."""
    if leader is None:
        return make_backend(options.backend)
    if options.backend != "hf":
        raise InspectError(
            f"the {options.backend} engine runs on one rank only",
            "Use --tp 1 and one device",
            exit_code=Exit.MODEL,
            code="bad_arg",
        )
    make_backend(options.backend)  # says what is not installed
    from engine_daemon.worker.ranks.leading import LeadingBackend

    return LeadingBackend(leader)


def load(link: Link, leader: Leader | None, pulse: Pulse) -> Engine:
    """From `Load` to `EngineReady`. Raises InspectError when the model cannot be had."""
    options = link.take_one(Load).options
    progress = ProgressReport(link, pulse)
    model_dir = locate(options, progress)
    link.send(Located(model_dir=model_dir))
    progress("import", 0, 0)
    backend = backend_of(options, leader)
    loaded = backend.load(options, model_dir, progress)
    table = PieceTable.read(Path(link.take_one(Pieces).path))
    if isinstance(backend, ChecksTokenizer):
        backend.check_probe(table.probe)
    link.send(
        EngineReady(
            backend=backend.name,
            synthetic=backend.synthetic,
            weights_id=loaded.weights_id,
            eos_ids=loaded.eos_ids,
            model=loaded.model,
            notes=loaded.notes,
        )
    )
    rows = KeptRows(rows_limit(options.rows_bytes, host_memory.present()))
    return Engine(backend, loaded, table, rows, limit_of(options.cache_bytes, backend))


def serve(link: Link, engine: Engine, pulse: Pulse) -> None:
    """Messages and turns, for ever: the hub ends this process."""
    turns = Turns(engine, link.send, link.coming, link.send, pulse.during)
    pulse.waits()
    while True:
        for message in link.take(wait=not turns.ready()):
            if isinstance(message, SumWeights):
                with pulse.during("check", known=False):
                    summed = sum_weights(engine, pulse)
                link.send(summed)
                turns.waited(summed.ms)
            else:
                with pulse.during("read", known=False):
                    turns.handle(message)
        turns.turn()


def sum_weights(engine: Engine, pulse: Pulse) -> WeightsSummed:
    """The checksum of the parameters in memory now."""
    started = time.monotonic_ns()
    checksum = None
    if isinstance(engine.backend, HasWeights):
        checksum = engine.backend.sum_weights(lambda *_: pulse.beat())
    return WeightsSummed(checksum=checksum, ms=(time.monotonic_ns() - started) / 1e6)
