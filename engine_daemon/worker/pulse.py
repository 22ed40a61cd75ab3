"""A sign of life of one rank: a thread tells the hub what the rank does and for how long.

It also answers requests for stacks, so that a rank which hangs in a kernel can be looked into.
Knows no sessions; what is too long is the hub's to say.
"""

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from itertools import count
from types import FrameType
from typing import Final

import zmq

from engine_daemon.protocol.codec import WireError, decode_body, open_envelope, seal
from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.worker import Alive, DumpStacks, Stacks, WorkPhase

PERIOD_MS: Final = 1000
CONNECTING_MS: Final = 20
_REMEMBERED: Final = 16
"""Operations of a kind that are remembered for what the next one may take."""
_LONG: Final = 4096
"""Positions from which on attention counts as much as everything else, about."""

WATCHING: Final = ("pulse", "deathwatch")
"""Names of threads that do nothing of a model's work."""
_log: Final = logging.getLogger(__name__)


class Pace:
    """What a position has cost so far, by kind of work; the slowest of the last ones counts."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[float]] = {}

    def took(self, phase: WorkPhase, positions: int, seconds: float) -> None:
        """An operation came back."""
        seen = self._seen.setdefault(phase, deque(maxlen=_REMEMBERED))
        seen.append(seconds / _weight(positions))

    def expected(self, phase: WorkPhase, positions: int) -> float | None:
        """Seconds that such an operation usually takes at most; None: nothing is known yet.

        A position read among others never costs more than one read alone: what steps cost holds
        for what was not measured.
        """
        seen = self._seen.get(phase) or self._seen.get("decode")
        return max(tuple(seen)) * _weight(positions) if seen else None


def _weight(positions: int) -> float:
    return max(positions, 1) * (1 + positions / _LONG)


_Operation = tuple[WorkPhase, int, float, bool]
"""What it is, over how many positions, since when, and whether these say how long it takes."""


class Pulse:
    """What this rank does now. The thread lives as long as the process."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._pace = Pace()
        self._counter = 0
        self._now: _Operation = ("loading", 0, time.monotonic(), False)

    def beat(self) -> None:
        """Something came of what is under way."""
        phase, positions, _, known = self._now
        self.begin(phase, positions, known=known)

    def waits(self) -> None:
        """Nothing is under way."""
        self.begin("idle", 0, known=False)

    def during(self, phase: WorkPhase, positions: int = 1, *, known: bool = True) -> "During":
        """Around one operation over so many positions. `known` false: its length says nothing."""
        return During(self, self._pace, phase, positions, known)

    def begin(self, phase: WorkPhase, positions: int, *, known: bool) -> None:
        """This is under way from now on."""
        self._counter += 1
        self._now = (phase, positions, time.monotonic(), known)

    def alive(self) -> Alive:
        """The message."""
        phase, positions, since, known = self._now
        return Alive(
            phase=phase,
            counter=self._counter,
            rank=self._rank,
            pid=os.getpid(),
            for_s=time.monotonic() - since,
            expected_s=self._pace.expected(phase, positions) if known else None,
        )

    def start(self, socket_path: str) -> None:
        """Tell the hub from now on. SIGUSR1 writes all stacks to the log, whatever holds Python."""
        if hasattr(sys.stderr, "fileno"):
            faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
        threading.Thread(target=self._tell, args=(socket_path,), name="pulse", daemon=True).start()

    def _tell(self, socket_path: str) -> None:
        socket = zmq.Context().socket(zmq.DEALER)
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(f"ipc://{socket_path}")
        numbers = count(1)

        def send(message: Message) -> bool:
            """False while there is no connection, or none any more."""
            try:
                socket.send_multipart(seal(message, id=next(numbers)), zmq.NOBLOCK)
            except zmq.Again:
                return False
            return True

        while True:
            if socket.poll(PERIOD_MS if send(self.alive()) else CONNECTING_MS):
                for ask in _asks(socket.recv_multipart()):
                    send(Stacks(ask=ask, text=stacks()))


class During:
    """See `Pulse.during`."""

    __slots__ = ("_known", "_pace", "_phase", "_positions", "_pulse", "_started")

    def __init__(
        self, pulse: Pulse, pace: Pace, phase: WorkPhase, positions: int, known: bool
    ) -> None:
        self._pulse, self._pace = pulse, pace
        self._phase, self._positions, self._known = phase, positions, known
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.monotonic()
        self._pulse.begin(self._phase, self._positions, known=self._known)

    def __exit__(self, *_: object) -> None:
        if self._known:
            self._pace.took(self._phase, self._positions, time.monotonic() - self._started)
        self._pulse.waits()


def _asks(frames: list[bytes]) -> list[int]:
    """The number of a request for stacks, if that is what came."""
    try:
        envelope, body = open_envelope(frames)
        return [decode_body(body, DumpStacks).ask] if envelope.t == "dump_stacks" else []
    except WireError as error:
        _log.error("from the hub: %s", error.message)
        return []


def stacks() -> str:
    """Python stacks of the threads, the main one first; each with its innermost frame first, as
    that is where it is. The threads that only keep watch come last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    found = [
        (ident != main, names.get(ident) in WATCHING, str(names.get(ident, ident)), frame)
        for ident, frame in sys._current_frames().items()
    ]
    found.sort(key=lambda one: one[:3])
    return "\n".join(
        f"{name}, innermost first:\n{_innermost_first(frame)}" for _, _, name, frame in found
    )


def _innermost_first(frame: FrameType) -> str:
    return "".join(reversed(traceback.format_stack(frame)))
