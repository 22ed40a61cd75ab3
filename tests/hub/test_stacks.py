"""Stacks of several ranks: all of them, or those that answer."""

from engine_daemon.hub.stacks import PATIENCE_S, StackAsks
from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.worker import DumpStacks


class Line:
    """What was sent to whom; `gone` routes take nothing."""

    def __init__(self, *gone: bytes) -> None:
        self.sent: list[tuple[bytes, int]] = []
        self.told: list[str | None] = []
        self.silent: list[int] = []
        self._gone = gone

    def send(self, route: bytes, message: Message) -> bool:
        assert isinstance(message, DumpStacks)
        self.sent.append((route, message.ask))
        return route not in self._gone

    def why(self, rank: int) -> str:
        self.silent.append(rank)
        return "is away"


def asks_of(line: Line, **routes: bytes) -> StackAsks:
    """Ranks `r0`, `r1` … at these routes."""
    asks = StackAsks(line.send, line.why)
    asks.routes = {int(name[1:]): route for name, route in routes.items()}
    return asks


def test_one_rank_answers_as_it_is() -> None:
    line = Line()
    asks = asks_of(line, r0=b"a")
    asks.ask(line.told.append)
    (route, number) = line.sent[0]
    asks.heard(b"b", number, "a stray one")
    asks.heard(route, number, "main")
    assert line.told == ["main"]


def test_all_ranks_are_told_together() -> None:
    line = Line()
    asks = asks_of(line, r0=b"a", r1=b"b")
    asks.ask(line.told.append)
    number = line.sent[0][1]
    asks.heard(b"b", number, "waits\n")
    assert line.told == []
    asks.heard(b"a", number, "leads\n")
    assert line.told == ["rank 0:\nleads\n\nrank 1:\nwaits\n"]


def test_a_rank_that_hangs_does_not_keep_the_others_back() -> None:
    line = Line()
    asks = asks_of(line, r0=b"a", r1=b"b")
    asks.ask(line.told.append)
    asks.heard(b"b", line.sent[0][1], "waits\n")
    asks.check(0.0)
    assert line.told == []
    asks.check(1e18 + PATIENCE_S)
    assert line.told == ["rank 0:\nis away\n\nrank 1:\nwaits\n"]
    assert line.silent == [0]


def test_nobody_who_answers_is_said_so() -> None:
    line = Line()
    asks = asks_of(line, r0=b"a")
    asks.ask(line.told.append)
    asks.check(1e18)
    assert line.told == ["is away\n"]


def test_nobody_there_and_a_worker_that_ends() -> None:
    line = Line(b"a")
    asks = asks_of(line, r0=b"a")
    asks.ask(line.told.append)
    assert line.told == [None]
    asks.routes = {1: b"b"}
    asks.ask(line.told.append)
    asks.lost()
    assert line.told == [None, None]
    asks.ask(line.told.append)
    assert line.told == [None, None, None]
