"""The worker as the hub sees it: one process a rank, which live and end together.

Each pair of rank 0 and another has a socket that nobody else has. Knows nothing of what they say.
"""

import contextlib
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine_daemon.hub.children import Child, Ending

WORKER: Final = "engine_daemon.worker"


@dataclass(frozen=True, slots=True)
class Loss:
    """The rank that ended first, and how. `several`: there were other ranks; `by`: who had the
    worker ended."""

    rank: int
    ending: Ending
    several: bool = False
    by: str = ""

    def __str__(self) -> str:
        if self.by:
            return f"the engine was ended by {self.by}"
        if not self.several:
            return f"the engine {self.ending}"
        if self.ending.signal is not None:
            return f"rank {self.rank} was killed ({self.ending.signal})"
        return f"rank {self.rank} {self.ending}"


class Ranks:
    """All ranks of one start of the worker."""

    def __init__(self, path: Path, count: int) -> None:
        self._first: Loss | None = None
        with contextlib.ExitStack() as open_here:
            pairs = [socket.socketpair() for _ in range(count - 1)]
            for end in (end for pair in pairs for end in pair):
                open_here.callback(end.close)
            self._children: list[Child] = []
            try:
                self._start(path, 0, [mine for mine, _ in pairs])
                for rank, (_, theirs) in enumerate(pairs, 1):
                    self._start(path, rank, [theirs])
            except BaseException:
                self.kill()
                raise

    def _start(self, path: Path, rank: int, ends: list[socket.socket]) -> None:
        fds = [end.fileno() for end in ends]
        peers = ("--peers", *map(str, fds)) if fds else ()
        self._children.append(Child(WORKER, path, ("--rank", str(rank), *peers), fds))

    @property
    def children(self) -> list[Child]:
        """In order of rank."""
        return self._children

    @property
    def pids(self) -> list[int]:
        """In order of rank."""
        return [child.pid for child in self._children]

    def loss(self) -> Loss | None:
        """None while all live. The first that ends takes the others with it; who that was is told
        once all have ended, so that the next start finds their memory free."""
        endings = [child.ending() for child in self._children]
        ended = [(rank, ending) for rank, ending in enumerate(endings) if ending is not None]
        if not ended:
            return None
        if self._first is None:
            # Of several at once: one that was killed rather than one that only followed it.
            rank, ending = min(ended, key=lambda it: (it[1].signal is None, it[0]))
            self._first = Loss(rank, ending, several=len(endings) > 1)
            self.kill()
        return self._first if len(ended) == len(endings) else None

    def kill(self) -> None:
        """End all of them at once."""
        for child in self._children:
            child.kill()

    def close(self) -> None:
        """Give up the death pipes; ended ranks need nothing more."""
        for child in self._children:
            child.close()
