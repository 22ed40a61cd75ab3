"""Turns without a socket: what is told, in which order, and what one message does to another."""

import pytest

from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.events import Event, Predicted, Stepped, Stopped
from engine_daemon.protocol.values import Sampler
from engine_daemon.protocol.worker import (
    Drop,
    EngineOptions,
    EventOut,
    ForceId,
    Go,
    Halt,
    Resample,
    Seen,
)
from engine_daemon.tokens.builtin import BuiltinTokenizer
from engine_daemon.worker.backends.scripted import ScriptedBackend
from engine_daemon.worker.engine import Engine
from engine_daemon.worker.telling import WINDOW
from engine_daemon.worker.turns import Turns
from tests.worker.conftest import PROMPT, opening

GO_ON = Go(session="s1", step=None, cause=b"go")
HALT = Halt(session="s1", cause=b"halt")


class Table:
    """Turns over the scripted engine; `log` is what was told, `inbox` what has just arrived."""

    def __init__(self, script: str = "") -> None:
        backend = ScriptedBackend()
        options = EngineOptions(backend="scripted", model=f"scripted:rate=0,{script}")
        loaded = backend.load(options, "", _ignore)
        engine = Engine(backend, loaded, BuiltinTokenizer().table())
        self.log: list[tuple[str, Event]] = []
        self.inbox: list[Message] = []
        self.turns = Turns(engine, self._told, lambda: self.inbox)

    def _told(self, message: EventOut) -> None:
        event = unpack_event(message.event)
        assert isinstance(event, Event)
        self.log.append((message.session, event))

    def handle(self, *messages: Message) -> None:
        for message in messages:
            self.turns.handle(message)

    def turn(self, times: int = 1) -> list[Event]:
        """What so many turns tell."""
        before = len(self.log)
        for _ in range(times):
            self.turns.turn()
        return [event for _, event in self.log[before:]]

    def all_seen(self) -> None:
        for name in {name for name, _ in self.log}:
            self.handle(Seen(session=name, next=sum(n == name for n, _ in self.log)))


def _ignore(stage: str, done: int, total: int) -> None:
    pass


def words(events: list[Event]) -> list[str]:
    """`P3` predicted step 3, `S3 …` stepped, with its stop; a stop is its reason and place."""
    told = []
    for event in events:
        match event:
            case Predicted(step=step):
                told.append(f"P{step}")
            case Stepped(step=step, stop=stop):
                told.append(f"S{step} {stop}" if stop else f"S{step}")
            case Stopped(reason=reason, step=step, pending=pending):
                told.append(f"{reason}@{step}{'' if pending else ' ended'}")
    return told


def test_nothing_to_do_without_sessions() -> None:
    table = Table()
    assert not table.turns.ready()
    assert table.turn() == []


def test_opening_then_running() -> None:
    table = Table()
    table.handle(opening())
    assert table.turns.ready()
    assert words(table.turn()) == ["P0"]
    assert not table.turns.ready()
    table.handle(GO_ON)
    assert words(table.turn(2)) == ["S0", "P1", "S1", "P2"]


def test_a_halt_between_two_turns_stands_where_it_is() -> None:
    table = Table()
    table.handle(opening(), GO_ON)
    table.turn(2)
    table.handle(HALT)
    assert words([table.log[-1][1]]) == ["pause@1"]
    assert table.log[-1][1].cause == b"halt"
    assert not table.turns.ready()


def test_a_halt_seen_before_a_step_is_told_marks_that_step() -> None:
    table = Table()
    table.handle(opening(), GO_ON)
    table.turn(1)
    table.inbox = [HALT]
    assert words(table.turn()) == ["S0 user", "P1"]
    table.handle(HALT)
    assert words([table.log[-1][1]]) == ["pause@1"]


def test_a_halt_for_another_session_marks_nothing() -> None:
    table = Table()
    table.handle(opening(), GO_ON)
    table.inbox = [Halt(session="s2")]
    assert words(table.turn(2)) == ["P0", "S0", "P1"]


def test_the_goal_and_the_end_of_text_come_before_a_halt() -> None:
    table = Table(f"eos_at={len(PROMPT) + 1}")
    table.handle(opening(), Go(session="s1", step=1))
    table.inbox = [HALT]
    assert words(table.turn(2)) == ["P0", "S0", "P1", "goal@1"]
    table.handle(HALT, GO_ON)
    table.all_seen()
    assert words(table.turn()) == ["S1 eos", "eos@2 ended"]
    table.handle(HALT)
    assert table.turn() == []


def test_a_halt_during_the_first_forward_stops_after_it() -> None:
    table = Table()
    table.handle(opening(), GO_ON, HALT)
    assert words(table.turn(3)) == ["P0", "pause@0"]


def test_a_goal_that_is_reached_already() -> None:
    table = Table()
    table.handle(opening())
    table.turn()
    table.handle(Go(session="s1", step=0, cause=b"0"))
    assert words([table.log[-1][1]]) == ["goal@0"]
    assert not table.turns.ready()


def test_going_on_after_the_end() -> None:
    table = Table()
    table.handle(opening(max_steps=1), GO_ON)
    assert words(table.turn(3)) == ["P0", "S0 length", "length@1 ended"]
    table.handle(Go(session="s1", step=1))
    table.all_seen()
    assert words(table.turn(3)) == ["P1", "goal@1"]
    table.handle(GO_ON)
    assert words(table.turn(2)) == ["S1", "P2", "S2", "P3"]


def test_going_on_from_the_end_to_a_later_step() -> None:
    table = Table()
    table.handle(opening(max_steps=1), GO_ON)
    table.turn(2)
    table.all_seen()
    table.handle(Go(session="s1", step=2))
    assert words(table.turn(5)) == ["P1", "S1", "P2", "goal@2"]


def test_after_pause_is_told_of_the_first_forward_only() -> None:
    table = Table()
    table.handle(opening())
    table.turn()
    table.handle(GO_ON)
    marks = [event.after_pause for event in table.turn(3) if isinstance(event, Predicted)]
    assert marks == [True, False, False]


def test_forcing_commits_and_stands() -> None:
    table = Table()
    table.handle(opening())
    table.turn()
    table.handle(ForceId(session="s1", id=65, cause=b"f"))
    events = table.turn(3)
    assert words(events) == ["S0", "P1", "goal@1"]
    assert isinstance(events[0], Stepped)
    assert (events[0].id, events[0].how) == (65, "forced")


@pytest.mark.parametrize("token_id", [-1, 10**6])
def test_no_such_token(token_id: int) -> None:
    table = Table()
    table.handle(opening())
    table.turn()
    table.handle(ForceId(session="s1", id=token_id))
    assert words([table.log[-1][1]]) == ["error@0"]
    table.handle(GO_ON)
    assert words(table.turn()) == ["S0", "P1"]


def test_forcing_where_nothing_is_pending() -> None:
    table = Table()
    table.handle(opening(max_steps=1), GO_ON)
    table.turn(2)
    table.handle(ForceId(session="s1", id=65))
    assert words([table.log[-1][1]]) == ["error@1 ended"]


def test_another_sampler_is_told_at_once() -> None:
    table = Table()
    table.handle(opening())
    table.turn()
    table.handle(Resample(session="s1", sampler=Sampler(greedy=False), salt=0, cause=b"r"))
    name, event = table.log[-1]
    assert (name, words([event]), event.cause) == ("s1", ["P0"], b"r")


def test_sessions_take_turns_and_say_how_long_they_waited() -> None:
    table = Table()
    for name in ("s1", "s2", "s3"):
        table.handle(opening(name), Go(session=name, step=4))
    table.turn(12)
    names = [name for name, event in table.log if isinstance(event, Predicted)]
    assert names == ["s1", "s2", "s3"] * 4
    waited = [event.waited_ms for _, event in table.log if isinstance(event, Predicted)]
    assert waited[0] == 0.0
    assert min(waited[1:]) > 0.0


def test_a_session_alone_waits_for_nobody() -> None:
    table = Table()
    table.handle(opening("s2"))
    table.turn()
    table.handle(opening(), GO_ON)
    assert {e.waited_ms for e in table.turn(5) if isinstance(e, Predicted)} == {0.0}


def test_the_window_counts_all_sessions() -> None:
    table = Table()
    for name in ("s1", "s2"):
        table.handle(opening(name), Go(session=name, step=None))
    table.turn(200)
    assert WINDOW - 3 < len(table.log) <= WINDOW
    assert not table.turns.ready()
    table.handle(Seen(session="s1", next=10))
    assert table.turns.ready()
    table.handle(Drop(session="s1"))
    table.turn(200)
    assert sum(name == "s2" for name, _ in table.log) > WINDOW - 3


def test_seen_beyond_what_was_sent_or_backwards_does_no_harm() -> None:
    table = Table()
    table.handle(opening(), GO_ON)
    table.turn(200)
    table.handle(Seen(session="s1", next=10**9), Seen(session="s1", next=1))
    before = len(table.log)
    table.turn(200)
    assert WINDOW - 3 < len(table.log) - before <= WINDOW


def test_messages_for_nobody_do_no_harm() -> None:
    table = Table()
    table.handle(GO_ON, HALT, Seen(session="s1", next=1), Drop(session="s1"))
    assert table.turn() == []


@pytest.mark.parametrize(
    ("fault", "reason"), [("no_memory_at", "no_memory"), ("error_at", "error")]
)
def test_a_failure_is_told_and_stays_with_its_session(fault: str, reason: str) -> None:
    table = Table(f"{fault}={len(PROMPT) + 1}")
    table.handle(opening(), GO_ON)
    assert words(table.turn(4)) == ["P0", "S0", f"{reason}@1 ended"]
    table.handle(Go(session="s1", step=2, cause=b"again"))
    table.all_seen()
    events = table.turn(4)
    assert words(events) == ["P1", "S1", "P2", "goal@2"]
    assert isinstance(events[0], Predicted)
    assert events[0].restored is not None


def test_a_failing_pick_leaves_the_distribution_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table()
    table.handle(opening(sampler=Sampler(greedy=False)))
    table.turn()

    def broken(seed: int, salt: int, step: int) -> float:
        raise RuntimeError("no\n  luck")

    with monkeypatch.context() as patched:
        patched.setattr("engine_daemon.worker.decode.draw", broken)
        table.handle(GO_ON)
        events = table.turn(3)
    assert words(events) == ["error@0"]
    assert isinstance(events[0], Stopped)
    assert (events[0].message, events[0].cause) == ("no luck", b"go")
    table.handle(GO_ON)
    assert words(table.turn()) == ["S0", "P1"]
