"""Long prompts in chunks, over the scripted engine: what is told, who waits, where it stands."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_daemon.protocol.commands import CHUNK
from engine_daemon.protocol.events import (
    Event,
    NaiveMeasured,
    Predicted,
    Prefilled,
    PromptScored,
    Stopped,
)
from engine_daemon.protocol.packing import pack_ints, unpack_floats, unpack_ints
from engine_daemon.protocol.values import Stops
from engine_daemon.protocol.worker import Go, Halt, Measure, OpenSession
from engine_daemon.worker.reference_sampling import logsumexp
from tests.worker.conftest import opening
from tests.worker.test_turns import Table, words

LONG = [65 + i * i % 180 for i in range(2 * CHUNK + 100)]
HALT = Halt(session="s1", cause=b"halt")


def long_opening(session: str = "s1", ids: list[int] = LONG, **changes: object) -> OpenSession:
    return opening(session, prompt_ids=pack_ints("I", ids), **changes)


def told(events: list[Event]) -> list[str]:
    """As `words`; `512/1124` is a chunk, `scored` the scores, `n40` a naive point."""
    parts: list[str] = []
    for event in events:
        match event:
            case Prefilled(done=done, total=total):
                parts.append(f"{done}/{total}")
            case PromptScored():
                parts.append("scored")
            case NaiveMeasured(length=length, left=left):
                parts.append(f"n{length} {left} left")
            case _:
                parts += words([event])
    return parts


def test_a_long_prompt_is_read_in_chunks_and_equals_one_read_at_once() -> None:
    table = Table()
    table.handle(long_opening(cause=b"o"))
    events = table.turn(5)
    assert told(events) == ["512/1124", "1024/1124", "P0"]
    assert {event.cause for event in events} == {b"o"}
    chunked = events[-1]
    assert isinstance(chunked, Predicted)
    assert (chunked.phase, chunked.processed, chunked.position) == ("prefill", 1124, 1124)
    chunks = [event for event in events if isinstance(event, Prefilled)]
    assert chunked.forward_ms > sum(event.forward_ms for event in chunks)
    other = Table()
    other.handle(long_opening(cache_mode="none"))
    (whole,) = other.turn(3)
    assert isinstance(whole, Predicted)
    assert whole.candidates == chunked.candidates
    assert (whole.cache.mode, whole.processed) == ("none", 1124)


@pytest.mark.parametrize("length", [1, CHUNK - 1, CHUNK])
def test_what_fits_in_a_turn_is_no_chunk(length: int) -> None:
    table = Table()
    table.handle(long_opening(ids=LONG[:length]))
    assert told(table.turn(3)) == ["P0"]


def test_others_decode_between_the_chunks_and_waiting_is_told() -> None:
    table = Table()
    table.handle(opening("s2"), Go(session="s2", step=None))
    table.turn()
    table.handle(long_opening())
    table.turn(6)
    order = [name for name, event in table.log if isinstance(event, Prefilled | Predicted)]
    assert order == ["s2", "s2", "s1", "s2", "s1", "s2", "s1"]
    mine = [event for name, event in table.log if name == "s1"]
    first, second, last = mine
    assert isinstance(first, Prefilled)
    assert isinstance(second, Prefilled)
    assert isinstance(last, Predicted)
    assert min(first.waited_ms, second.waited_ms) > 0.0
    assert last.waited_ms > first.waited_ms + second.waited_ms


def test_a_halt_stands_between_two_chunks() -> None:
    table = Table()
    table.handle(long_opening())
    table.turn()
    table.handle(HALT)
    (_, stopped) = table.log[-1]
    assert isinstance(stopped, Stopped)
    assert (stopped.reason, stopped.pending, stopped.cause) == ("pause", False, b"halt")
    assert not table.turns.ready()
    assert table.turn(3) == []
    table.handle(Go(session="s1", step=0, cause=b"go"))
    table.all_seen()
    events = table.turn(4)
    assert told(events) == ["1024/1124", "P0", "goal@0"]
    assert {event.cause for event in events} == {b"go"}


def test_a_halt_before_the_first_chunk_stands_after_it() -> None:
    table = Table()
    table.handle(long_opening(), HALT)
    assert told(table.turn(4)) == ["512/1124", "pause@0 ended"]


def test_a_halt_for_a_short_prompt_that_was_only_opened_is_the_hubs_to_tell() -> None:
    table = Table()
    table.handle(opening(), HALT)
    assert told(table.turn(3)) == ["P0"]
    table.handle(Go(session="s1", step=None))
    assert told(table.turn(1)) == ["S0", "P1"]


def test_a_chunk_at_a_time() -> None:
    table = Table()
    table.handle(long_opening(), HALT)
    table.turn(2)
    table.handle(Go(session="s1", step=0, read=CHUNK + 1))
    table.all_seen()
    assert told(table.turn(4)) == ["1024/1124", "goal@0 ended"]
    table.handle(Go(session="s1", step=0, read=2 * CHUNK + 1))
    assert told(table.turn(4)) == ["P0", "goal@0"]


def test_a_run_goes_on_after_the_last_chunk() -> None:
    table = Table()
    table.handle(long_opening(), Go(session="s1", step=2))
    assert told(table.turn(9)) == ["512/1124", "1024/1124", "P0", "S0", "P1", "S1", "P2", "goal@2"]


def test_a_restored_sequence_is_read_in_chunks_too() -> None:
    table = Table()
    order = long_opening(ids=LONG[:CHUNK])
    generated = pack_ints("I", [70] * 3)
    table.handle(msgspec.structs.replace(order, ids=generated, restored=True))
    events = table.turn(3)
    assert told(events) == ["512/515", "P3"]
    last = events[-1]
    assert isinstance(last, Predicted)
    assert last.restored is not None
    assert last.restored.replayed == 515


# Scores ---------------------------------------------------------------------------------------


def test_scores_are_told_before_the_first_distribution_and_right() -> None:
    table = Table()
    table.handle(long_opening(stops=Stops(score=True)))
    events = table.turn(4)
    assert told(events) == ["512/1124", "1024/1124", "scored", "P0"]
    scored = events[2]
    assert isinstance(scored, PromptScored)
    logprobs, ranks = unpack_floats("f", scored.logprobs), unpack_ints("I", scored.ranks)
    assert len(logprobs) == len(ranks) == len(LONG)
    assert logprobs[0] != logprobs[0]
    assert ranks[0] == 0
    rows = table.turns._engine.backend._rows  # type: ignore[attr-defined]  # the scripted one
    for place in (1, 2, 3, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, len(LONG) - 1):
        logits = rows.row(rows.key(LONG[max(place - 3, 0) : place], place)).logits
        own = logits[LONG[place]]
        assert logprobs[place] == pytest.approx(own - logsumexp(logits), rel=1e-6)
        assert ranks[place] == 1 + sum(x > own for x in logits)


def test_scores_begin_again_when_a_failure_threw_the_cache_away() -> None:
    table = Table()
    table.handle(long_opening(stops=Stops(score=True)))
    table.turn()
    seat = table.turns._seats["s1"]
    seat.session.give_back()
    seat.mend()
    events = table.turn(4)
    assert told(events) == ["512/1124", "1024/1124", "scored", "P0"]
    scored = events[2]
    assert isinstance(scored, PromptScored)
    assert len(scored.ranks) == 4 * len(LONG)


def test_no_scores_unless_asked_for() -> None:
    table = Table()
    table.handle(opening())
    assert told(table.turn(2)) == ["P0"]


def test_scores_without_a_cache() -> None:
    tables = [Table(), Table()]
    for table, mode in zip(tables, ("kv", "none"), strict=True):
        table.handle(long_opening(stops=Stops(score=True), cache_mode=mode))
    first, second = (
        next(e for e in table.turn(5) if isinstance(e, PromptScored)) for table in tables
    )
    assert first.logprobs == second.logprobs
    assert first.ranks == second.ranks


# Naive ----------------------------------------------------------------------------------------


def test_measurements_are_one_turn_each_and_change_nothing() -> None:
    table = Table()
    table.handle(opening("s2"), long_opening(ids=LONG[:40]))
    table.turn(2)
    table.handle(
        Go(session="s2", step=None), Measure(session="s1", lengths=[8, 20, 40], cause=b"m")
    )
    table.turn(6)
    names = [name for name, event in table.log[2:] if not isinstance(event, Predicted)]
    assert names == ["s2", "s1", "s2", "s1", "s2", "s1"]
    mine = [event for name, event in table.log if name == "s1"][1:]
    assert told(mine) == ["n8 2 left", "n20 1 left", "n40 0 left"]
    assert {event.cause for event in mine} == {b"m"}
    table.handle(Go(session="s1", step=1))
    table.all_seen()
    assert "P1" in told(table.turn(3))


def test_a_halt_cancels_what_is_left() -> None:
    table = Table()
    table.handle(opening())
    table.turn()
    table.handle(Measure(session="s1", lengths=[1, 2, 3]))
    assert told(table.turn()) == ["n1 2 left"]
    table.handle(HALT)
    assert table.turn(3) == []
    assert not table.turns.ready()


def test_without_a_cache_every_step_reads_everything() -> None:
    table = Table()
    table.handle(opening(cache_mode="none"), Go(session="s1", step=5))
    reads = [event for event in table.turn(7) if isinstance(event, Predicted)]
    assert [event.processed for event in reads] == [event.position for event in reads]
    assert [event.position for event in reads] == [4, 5, 6, 7, 8, 9]
    assert {event.cache.mode for event in reads} == {"none"}
    assert {event.cache.tokens for event in reads} == {0}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["turn", "halt", "go", "chunk"]), max_size=10))
def test_however_it_is_interrupted_the_distribution_is_the_same(moves: list[str]) -> None:
    table = Table()
    table.handle(long_opening())
    for move in moves:
        done = max((e.done for _, e in table.log if isinstance(e, Prefilled)), default=0)
        match move:
            case "turn":
                table.turn()
            case "halt":
                table.handle(HALT)
            case "chunk":
                table.handle(Go(session="s1", step=0, read=done + 1))
            case _:
                table.handle(Go(session="s1", step=0))
        table.all_seen()
    table.handle(Go(session="s1", step=0))
    table.all_seen()
    table.turn(6)
    events = [event for _, event in table.log if not isinstance(event, Stopped)]
    assert told(events) == ["512/1124", "1024/1124", "P0"]
    last = events[-1]
    assert isinstance(last, Predicted)
    assert last.processed == 1124
