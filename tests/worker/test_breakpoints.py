"""Where conditions stop a session, against a plain computation over what was recorded.

The engine runs with a condition; the test then looks through the recorded steps with arithmetic of
its own for the first one where the condition is true. Both must name the same place.
"""

import re
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_daemon.protocol.events import (
    ConditionDisabled,
    Event,
    Predicted,
    Stepped,
    Stopped,
)
from engine_daemon.protocol.packing import pack_floats, pack_ints
from engine_daemon.protocol.synthetic import EOS_ID
from engine_daemon.protocol.values import ConditionSpec, Sampler, Stops, TokenIds
from engine_daemon.protocol.worker import ForceId, Go, Halt, SetConditions
from engine_daemon.tokens.builtin import PIECES
from tests.worker.conftest import opening
from tests.worker.plain_conditions import (
    LIMIT,
    STEPS,
    TREES,
    Tree,
    committed,
    ids_of,
    records,
    true,
    written,
)
from tests.worker.test_turns import GO_ON, Table, words


def spec(source: str, number: int = 1) -> ConditionSpec:
    """With ids for every text in double quotes."""
    texts = [text.encode() for text in re.findall(r'"([^"]*)"', source)]
    return ConditionSpec(
        number=number,
        source=source,
        literals=[TokenIds(text=t, ids=pack_ints("I", ids_of(t))) for t in dict.fromkeys(texts)],
    )


def stops(*sources: str, watch: Sequence[int] = ()) -> Stops:
    specs = [spec(source, number) for number, source in enumerate(sources, 1)]
    return Stops(conditions=specs, watch=pack_ints("I", watch))


def run_on(table: Table) -> list[Event]:
    """Turns until nothing is to be done; what they told."""
    before = len(table.log)
    for _ in range(10 * STEPS):
        table.turns.turn()
        table.all_seen()
    return [event for _, event in table.log[before:]]


def started(*sources: str, **changes: object) -> Table:
    """A session that was opened running."""
    table = Table()
    fields: dict[str, object] = {
        "stops": stops(*sources),
        "stands": False,
        "candidates": 512,
        "max_steps": STEPS,
        "limit_tokens": LIMIT,
        "sampler": Sampler(greedy=False, temperature=1.5, seed=5),
    }
    table.handle(opening("s1", **{**fields, **changes}), GO_ON)
    return table


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tree=TREES, seed=st.integers(0, 50))
def test_the_engine_stops_where_the_condition_is_first_true(tree: Tree, seed: int) -> None:
    sampler = Sampler(greedy=False, temperature=1.5, seed=seed)
    log = [event for _, event in _told(started(written(tree), sampler=sampler))]
    stop = log[-1]
    assert isinstance(stop, Stopped)
    assert sum(isinstance(event, Stopped) for event in log) == 1
    after = committed(tree)
    asked = [r for r in records(log) if not (after and r.stepped is None)]
    hits = [record.predicted.step for record in asked if true(tree, record)]
    if stop.reason == "condition":
        ended = any(isinstance(e, Stepped) and e.stop in ("eos", "length") for e in log)
        at = stop.step - 1 if after else stop.step
        assert hits[0] == at
        assert stop.pending is not (after and ended)
        assert stop.condition == 1
        assert stop.source == written(tree)
        marked = [e.step for e in log if isinstance(e, Stepped) and e.stop == "condition"]
        assert marked == ([at] if after and not ended else [])
        # Nothing runs past the stop: one distribution more, no token.
        assert max(e.step for e in log if isinstance(e, Stepped | Predicted)) <= stop.step
    else:
        assert hits == []
        assert stop.reason in ("eos", "length")


def _told(table: Table) -> list[tuple[str, Event]]:
    run_on(table)
    return table.log


def test_several_conditions_are_joined_by_or_and_the_first_one_is_named() -> None:
    events = run_on(started("step=9", "step>=5", "step=5"))
    stop = events[-1]
    assert isinstance(stop, Stopped)
    assert (stop.reason, stop.step, stop.pending) == ("condition", 5, True)
    assert (stop.condition, stop.source, stop.values) == (2, "step>=5", {"step": 5})


def test_the_first_distribution_is_asked_when_it_was_opened_running() -> None:
    table = started("step=0")
    assert words(run_on(table)) == ["P0", "condition@0"]


def test_nor_does_it_matter_when_the_go_arrives() -> None:
    table = Table()
    table.handle(opening(stops=stops("step=0"), stands=False))
    assert words(table.turn()) == ["P0"]
    table.handle(GO_ON)
    assert words(run_on(table)) == []
    assert words([table.log[-1][1]]) == ["condition@0"]


def test_a_place_where_somebody_stands_is_not_asked_about() -> None:
    table = Table()
    table.handle(opening(stops=stops("step>=0")))
    table.turn()
    table.handle(GO_ON)
    assert words(run_on(table)) == ["S0", "P1", "condition@1"]


def test_it_is_not_asked_again_at_the_step_it_stopped() -> None:
    table = started("step>=3")
    assert words(run_on(table))[-1] == "condition@3"
    table.handle(GO_ON)
    assert words(run_on(table)) == ["S3", "P4", "condition@4"]


def test_a_condition_on_the_token_stops_after_the_next_forward() -> None:
    table = started("rank>=1 and step=2")
    assert words(run_on(table))[-4:] == ["P2", "S2 condition", "P3", "condition@3"]
    table.handle(GO_ON)
    assert words(run_on(table))[-1].endswith("ended")


def test_a_forced_token_is_asked_about_too() -> None:
    table = Table()
    table.handle(opening(stops=stops('token=" of"')))
    table.turn()
    table.handle(ForceId(session="s1", id=ids_of(b" of")[0], cause=b"f"))
    assert words(run_on(table)) == ["S0 condition", "P1", "condition@1"]


def test_a_condition_on_the_last_token_is_named_and_the_session_has_ended() -> None:
    table = Table("eos_at=7")
    table.handle(opening(stops=stops("special")), GO_ON)
    events = run_on(table)
    assert words(events)[-2:] == ["S3 eos", "condition@4 ended"]
    table.handle(GO_ON)
    assert words(run_on(table))[:2] == ["P4", "S4"]


def test_a_goal_and_a_condition_at_one_step_name_the_condition() -> None:
    table = Table()
    table.handle(opening(stops=stops("step=4")), Go(session="s1", step=4, cause=b"go"))
    assert words(run_on(table))[-1] == "condition@4"


def test_conditions_come_and_go_while_it_runs() -> None:
    table = Table()
    table.handle(opening(stops=stops()), GO_ON)
    table.turn(5)
    table.all_seen()
    both = [spec("step=8", 1), spec("step=6", 2)]
    table.handle(SetConditions(session="s1", conditions=both, watch=b""))
    table.handle(SetConditions(session="s1", conditions=both[:1], watch=b""))
    assert words(run_on(table))[-1] == "condition@8"


def test_a_condition_that_is_too_slow_is_given_up_and_the_run_goes_on() -> None:
    slow = "text~'(.*){1,32000}[\\u0100-\\u0200]'"
    table = started(slow, "step=25")
    events = run_on(table)
    (off,) = [event for event in events if isinstance(event, ConditionDisabled)]
    assert off.number == 1
    assert "20 ms" in off.message
    assert words(events)[-1] == "condition@25"


def test_a_condition_that_is_none_is_given_up_at_once() -> None:
    table = Table()
    table.handle(opening(stops=stops("entropy>>3")), GO_ON)
    told = run_on(table)
    (off,) = [event for event in told if isinstance(event, ConditionDisabled)]
    assert "cannot be used" in off.message


def test_times_before_a_restart_count_for_the_median() -> None:
    ids = ids_of(b" of") * 9
    times = pack_floats("f", [1e6] * 9)
    condition = [spec("ms<0.5x")]
    table = Table()
    again = Stops(conditions=condition, total_ms=times)
    table.handle(opening(ids=pack_ints("I", ids), restored=True, stops=again), GO_ON)
    assert words(run_on(table))[:3] == ["P9", "S9 condition", "P10"]


def test_text_goes_on_from_what_was_there_before_a_restart() -> None:
    ids = [*ids_of(b" of"), *ids_of(b" life")]
    table = Table()
    again = Stops(conditions=[spec("text~'of life \\w+$'")])
    table.handle(opening(ids=pack_ints("I", ids), restored=True, stops=again), GO_ON)
    assert words(run_on(table))[:3] == ["P2", "S2 condition", "P3"]


def test_a_time_limit_pauses_at_the_next_distribution() -> None:
    table = started()
    table.turn(3)
    table.inbox = [Halt(session="s1", reason="timeout")]
    assert words(table.turn()) == ["S2", "P3"]
    table.handle(*table.inbox)
    assert words([table.log[-1][1]]) == ["timeout@3"]


def test_watched_tokens_have_the_numbers_of_the_whole_distribution() -> None:
    watch = [*ids_of(b" the"), *ids_of(b" second"), EOS_ID]
    table = Table()
    table.handle(opening(stops=stops(watch=watch), candidates=512, max_steps=5), GO_ON)
    seen = [event for event in run_on(table) if isinstance(event, Predicted)]
    assert len(seen) == 5
    for predicted in seen:
        rows = predicted.candidates.rows()
        logits = {row.id: row.logit for row in rows}
        assert predicted.watched is not None
        found = predicted.watched.rows()
        assert [row.id for row in found] == watch
        for row in found:
            assert row.logit == logits[row.id]
            assert row.rank == 1 + sum(other > row.logit for other in logits.values())
            assert row.piece == PIECES[row.id]


def test_nobody_watches_nothing_is_told() -> None:
    events = run_on(started())
    assert all(event.watched is None for event in events if isinstance(event, Predicted))


def test_another_watch_list_shows_at_once_where_it_stands() -> None:
    table = Table()
    table.handle(opening(stops=stops()))
    table.turn()
    order = SetConditions(session="s1", conditions=[], watch=pack_ints("I", [300]), cause=b"w")
    table.handle(order)
    predicted = table.log[-1][1]
    assert isinstance(predicted, Predicted)
    assert (predicted.step, predicted.cause) == (0, b"w")
    assert predicted.watched is not None
    assert [row.id for row in predicted.watched.rows()] == [300]
    table.handle(order)
    assert table.log[-1][1] is predicted


@pytest.mark.parametrize("token_id", [512, 2**32 - 1])
def test_ids_that_the_model_does_not_have_are_left_out(token_id: int) -> None:
    unknown = ConditionSpec(
        number=1,
        source='p("zz")>0.1 or step=2',
        literals=[TokenIds(text=b"zz", ids=pack_ints("I", [token_id]))],
    )
    table = Table()
    order = Stops(conditions=[unknown], watch=pack_ints("I", [token_id, 300]))
    table.handle(opening(stops=order), GO_ON)
    events = run_on(table)
    assert words(events)[-1] == "condition@2"
    first = events[0]
    assert isinstance(first, Predicted)
    assert first.watched is not None
    assert [row.id for row in first.watched.rows()] == [300]
