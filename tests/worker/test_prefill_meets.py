"""Chunks and measurements where conditions, time limits and branches meet them."""

import pytest

from engine_daemon.protocol.commands import CHUNK
from engine_daemon.protocol.events import Predicted, Stopped
from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.values import Sampler
from engine_daemon.protocol.worker import ForceId, Go, Halt, Measure, Move
from tests.worker.conftest import opening
from tests.worker.test_breakpoints import run_on, stops
from tests.worker.test_prefill import LONG, long_opening, told
from tests.worker.test_turns import GO_ON, Table


def moved(branch: int, ids: list[int], *, look: bool) -> Move:
    packed = pack_ints("I", ids)
    return Move(session="s1", branch=branch, ids=packed, sampler=Sampler(), salt=0, look=look)


def lost(table: Table) -> None:
    """Cache and rows of the session went elsewhere."""
    table.turns._seats["s1"].session.give_back()
    table.turns._engine.rows.drop("s1")


def test_conditions_are_asked_at_the_distribution_and_not_between_chunks() -> None:
    table = Table()
    table.handle(long_opening(stops=stops("step=0"), stands=False), GO_ON)
    events = run_on(table)
    assert told(events) == ["512/1124", "1024/1124", "P0", "condition@0"]


def test_a_session_that_was_paused_while_it_read_is_asked_once_it_is_there() -> None:
    table = Table()
    table.handle(long_opening(stops=stops("step=0")))
    table.turn()
    table.handle(Halt(session="s1"))
    table.handle(Go(session="s1", step=3))
    assert told(run_on(table))[-2:] == ["P0", "condition@0"]


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_time_limit_stands_at_a_step_never_inside_the_prompt(turns: int) -> None:
    table = Table()
    table.handle(long_opening(stands=False), GO_ON)
    for _ in range(turns):
        table.turn()
    table.handle(Halt(session="s1", reason="timeout"))
    assert told(run_on(table))[-2:] == ["P0", "timeout@0"]


@pytest.mark.parametrize("look", [True, False])
def test_where_it_stood_before_it_is_not_stopped_once_more(look: bool) -> None:
    table = Table()
    table.handle(opening(stops=stops("step=2")), Go(session="s1", step=None))
    assert told(run_on(table))[-1] == "condition@2"
    table.handle(moved(1, [70, 71], look=look), Go(session="s1", step=4))
    assert told(run_on(table)) == ["P2", "S2", "P3", "S3", "P4", "goal@4"]


def test_another_branch_is_read_again_in_chunks_and_forced_on() -> None:
    table = Table()
    table.handle(long_opening(), Go(session="s1", step=3))
    run_on(table)
    lost(table)
    table.handle(moved(1, [70], look=True), ForceId(session="s1", id=72))
    events = run_on(table)
    assert told(events) == ["512/1125", "1024/1125", "P1", "S1", "P2", "goal@2"]
    seen = next(event for event in events if isinstance(event, Predicted))
    assert (seen.branch, seen.processed, seen.phase) == (1, 1125, "prefill")
    assert seen.restored is not None
    assert (seen.restored.method, seen.restored.replayed) == ("prefill", 1125)


def test_a_look_can_be_paused_between_chunks_and_taken_up() -> None:
    table = Table()
    table.handle(long_opening(), Go(session="s1", step=3))
    run_on(table)
    lost(table)
    table.handle(moved(1, [70], look=True))
    table.turn()
    table.handle(Halt(session="s1"))
    stop = table.log[-1][1]
    assert isinstance(stop, Stopped)
    assert (stop.reason, stop.branch, stop.step, stop.pending) == ("pause", 1, 1, False)
    table.handle(moved(0, [], look=True))
    assert told(run_on(table)) == ["1024/1124", "P0"]


def test_a_single_position_is_never_left_over() -> None:
    table = Table()
    table.handle(long_opening(ids=LONG[: CHUNK + 1]))
    assert told(table.turn(3)) == ["511/513", "P0"]


def test_going_to_another_branch_drops_what_was_to_be_measured() -> None:
    table = Table()
    table.handle(opening(), Go(session="s1", step=3))
    run_on(table)
    table.handle(Measure(session="s1", lengths=[1, 2, 3]))
    assert told(table.turn()) == ["n1 2 left"]
    table.handle(moved(1, [70], look=False))
    assert run_on(table) == []
