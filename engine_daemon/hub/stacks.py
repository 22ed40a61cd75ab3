"""Requests for Python stacks that not every rank of the worker has answered yet.

Knows routes and texts; what a viewer is told is the caller's.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from engine_daemon.hub.children import Child
from engine_daemon.lookup import halted_words, is_halted
from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.worker import DumpStacks

PATIENCE_S: Final = 2.0
"""A rank that is halted, or holds Python in a kernel, does not answer; what the others say is told
without it."""

_LOGGED: Final = "; its stacks are in the log: llm-inspect daemon logs"

Answer = Callable[[str | None], None]


def silence(child: Child) -> str:
    """What is to be said of a rank that does not answer. If it runs, it writes its stacks to the
    log; a halted one says nothing anywhere."""
    if is_halted(child.pid):
        return f"is halted (SIGSTOP or a debugger): {halted_words(child.pid)}"
    return "does not answer" + (_LOGGED if child.dump() else "")


@dataclass(slots=True)
class _Ask:
    answer: Answer
    waiting: dict[bytes, int]
    since: float
    texts: dict[int, str] = field(default_factory=dict)
    several: bool = False

    def text(self, why: Callable[[int], str]) -> str:
        """`why` a rank does not answer."""
        silent = {rank: f"{why(rank)}\n" for rank in self.waiting.values()}
        if not self.several:
            return "".join((*self.texts.values(), *silent.values()))
        return "\n".join(f"rank {r}:\n{text}" for r, text in sorted((self.texts | silent).items()))


class StackAsks:
    """`send` brings a message to a route; False when nobody is there. `why`: what is said of a rank
    that does not answer. `routes`: where the ranks answer, by number."""

    def __init__(self, send: Callable[[bytes, Message], bool], why: Callable[[int], str]) -> None:
        self.routes: dict[int, bytes] = {}
        self._send = send
        self._why = why
        self._asks: dict[int, _Ask] = {}

    def ask(self, answer: Answer) -> None:
        """Ask the ranks for their stacks; None when none of them is there."""
        number = time.monotonic_ns()
        asked = {
            route: rank
            for rank, route in self.routes.items()
            if self._send(route, DumpStacks(ask=number))
        }
        if asked:
            self._asks[number] = _Ask(answer, asked, time.monotonic(), several=len(asked) > 1)
        else:
            answer(None)

    def heard(self, route: bytes, number: int, text: str) -> None:
        """One rank's stacks."""
        ask = self._asks.get(number)
        if ask is None or route not in ask.waiting:
            return
        ask.texts[ask.waiting.pop(route)] = text
        if not ask.waiting:
            del self._asks[number]
            ask.answer(ask.text(self._why))

    def check(self, now: float) -> None:
        """Tell what there is where some ranks have not answered for too long."""
        for number, ask in list(self._asks.items()):
            if now - ask.since > PATIENCE_S:
                del self._asks[number]
                ask.answer(ask.text(self._why))

    def lost(self) -> None:
        """The worker is gone."""
        self.routes.clear()
        asks, self._asks = self._asks, {}
        for ask in asks.values():
            ask.answer(None)
