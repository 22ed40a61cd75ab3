"""When an engine is called stuck, by clocks that the test sets."""

from collections.abc import Callable

import pytest

from engine_daemon.hub.watchdog import (
    FIRST_TIMES,
    HALTED_S,
    TokensWatch,
    Watchdog,
    shown,
    words,
)
from engine_daemon.protocol.liveness import Alive, WorkPhase
from engine_daemon.protocol.state import EngineDetails, EngineState, Stuck

PATIENCE_S = 30.0


class Kernel:
    """What the system says of processes 100, 101 …"""

    def __init__(self, ranks: int = 1) -> None:
        self.states: dict[int, str] = {}
        self.now = 1000.0
        self.dog = Watchdog(PATIENCE_S, lambda pid: self.states.get(pid, "S"))
        self.dog.started([100 + rank for rank in range(ranks)], self.now)
        self.ranks = ranks

    def alive(
        self,
        phase: WorkPhase = "idle",
        for_s: float = 0.0,
        expected_s: float | None = None,
        rank: int = 0,
    ) -> None:
        self.dog.heard(
            Alive(
                phase=phase,
                counter=1,
                rank=rank,
                pid=100 + rank,
                for_s=for_s,
                expected_s=expected_s,
            ),
            self.now,
        )

    def after(self, seconds: float, beat: Callable[[], None] | None = None) -> Stuck | None:
        """Let time pass, a look each second; `beat`: what the ranks say meanwhile."""
        for _ in range(int(seconds)):
            self.now += 1.0
            if beat is not None:
                beat()
            self.dog.check(self.now)
        return self.dog.stuck


@pytest.mark.fault("E4")
def test_a_stopped_process_is_halted_and_goes_on_when_it_wakes() -> None:
    box = Kernel()
    box.alive()
    box.states[100] = "T"
    assert box.after(HALTED_S - 1) is None
    found = box.after(3)
    assert found is not None
    assert (found.ranks, found.why) == ([0], "halted")
    assert box.after(3600) is not None
    box.states[100] = "S"
    box.alive()
    assert box.after(1) is None


@pytest.mark.fault("E4")
def test_a_step_that_is_late_because_a_rank_was_just_stopped_is_told_as_halted() -> None:
    box = Kernel(ranks=2)

    def beat() -> None:
        for rank in range(2):
            box.alive("decode", for_s=box.now - 1000.0, expected_s=0.1, rank=rank)

    assert box.after(PATIENCE_S - 1, beat) is None
    box.states[101] = "T"
    found = box.after(2, lambda: box.alive("decode", box.now - 1000.0, 0.1))
    assert found is not None
    assert (found.ranks, found.why) == ([1], "halted")


@pytest.mark.fault("E4")
def test_the_rank_that_is_stopped_is_named_not_those_that_wait_for_it() -> None:
    box = Kernel(ranks=3)
    box.states[102] = "T"

    def beat() -> None:
        for rank in (0, 1):
            box.alive("decode", for_s=box.now - 1000, expected_s=0.05, rank=rank)

    found = box.after(60, beat)
    assert found is not None
    assert (found.ranks, found.why) == ([2], "halted")
    assert words(found, 3).startswith("rank 2 is halted (SIGSTOP), for ")


@pytest.mark.fault("E4")
@pytest.mark.parametrize(
    ("expected_s", "limit_s"),
    [(0.02, PATIENCE_S), (7.0, 70.0), (None, PATIENCE_S * FIRST_TIMES)],
)
def test_what_is_usual_says_what_is_too_long(expected_s: float | None, limit_s: float) -> None:
    box = Kernel()
    begun = box.now

    def beat() -> None:
        box.alive("prefill", for_s=box.now - begun, expected_s=expected_s)

    assert box.after(limit_s, beat) is None
    found = box.after(1, beat)
    assert found is not None
    assert (found.why, found.phase, found.for_s) == ("busy", "prefill", int(limit_s) + 1)
    box.alive("decode", for_s=0.1, expected_s=1.0)
    assert box.after(1) is None


@pytest.mark.fault("E4")
def test_loading_may_say_nothing_for_long_an_engine_that_serves_may_not() -> None:
    box = Kernel()
    assert box.after(PATIENCE_S * 10) is None  # torch is imported from a slow disk
    box.alive("loading")
    assert box.after(PATIENCE_S * 10) is None
    box.alive("idle")
    assert box.after(PATIENCE_S) is None
    found = box.after(1)
    assert found is not None
    assert (found.why, found.ranks) == ("silent", [0])


@pytest.mark.fault("E4")
def test_an_engine_that_waits_is_never_stuck() -> None:
    box = Kernel()
    assert box.after(100_000, lambda: box.alive("idle", for_s=box.now - 1000)) is None


def test_time_in_which_the_hub_itself_stood_is_nobodys() -> None:
    box = Kernel()
    box.alive()
    box.after(5)
    box.now += 3600
    box.dog.check(box.now)
    assert box.dog.stuck is None
    assert box.after(PATIENCE_S - 6) is None
    assert box.after(2) is not None


def test_strangers_and_earlier_processes_are_not_listened_to() -> None:
    box = Kernel()
    box.alive()
    box.dog.heard(Alive(phase="decode", counter=1, rank=0, pid=7, for_s=1e6), box.now)
    box.dog.heard(Alive(phase="decode", counter=1, rank=5, pid=105, for_s=1e6), box.now)
    assert box.after(1) is None
    box.dog.started([], box.now)
    assert box.after(1000) is None


def test_what_is_shown_of_it() -> None:
    engine = EngineState(word="ready", details=EngineDetails(pids=[1, 2]))
    assert shown(engine, None) is engine
    stuck = Stuck(ranks=[0, 1], why="busy", phase="decode", for_s=41)
    told = shown(engine, stuck)
    assert (told.word, told.details.stuck, told.details.pids) == ("stuck", stuck, [1, 2])
    assert told.message == "ranks 0 and 1: a step has taken 41 s and goes on"
    assert "daemon stacks" in told.hint
    dead = EngineState(word="dead")
    assert shown(dead, stuck) is dead
    silent = Stuck(ranks=[0], why="silent", phase="", for_s=31)
    assert words(silent, 1) == "no sign of life of the engine for 31 s"


def test_the_log_is_told_once_then_ever_more_seldom_and_that_it_is_over() -> None:
    box = Kernel()
    box.alive()
    box.states[100] = "T"
    lines = []
    for second in range(600):
        if second >= 500:
            box.states[100] = "S"
            box.alive()
        box.after(1)
        if (line := box.dog.news()) is not None:
            lines.append(line)
    assert lines[0].startswith("the engine is halted (SIGSTOP), for ")
    assert 5 <= len(lines) <= 10, lines
    assert lines[-1].startswith("the engine goes on; it had stood for ")
    assert box.dog.news() is None


def test_a_tokens_process_that_is_halted_before_it_has_loaded_is_named() -> None:
    states = {7: "T"}
    watch, engine = TokensWatch(lambda pid: states.get(pid, "S")), EngineState(word="ready")
    assert not watch.check(7, 10.0)
    assert watch.shown(engine) == engine
    assert watch.check(7, 10.0 + HALTED_S)
    told = watch.shown(engine)
    assert (told.word, told.code) == ("stuck", "stuck")
    assert told.message == "the tokens process is halted (SIGSTOP), for 3 s now"
    assert told.hint == "kill -CONT 7 lets it go on, llm-inspect daemon restart ends it"
    assert watch.news() == told.message
    assert watch.news() is None
    # Another one that was started meanwhile has a time of its own.
    states[8] = "T"
    assert watch.check(8, 20.0)
    assert watch.shown(engine) == engine
    assert watch.check(8, 20.0 + HALTED_S)
    assert watch.news() is not None
    states[8] = "S"
    assert watch.check(8, 30.0)
    assert watch.shown(engine) == engine
    # It has loaded: there is nothing to watch.
    states[8] = "T"
    for now in (40.0, 50.0):
        assert not watch.check(None, now)
