"""The clock of a replay, against plain sums; the marks of a path."""

from itertools import accumulate

import pytest

from engine_daemon.recording.columns import Columns
from tests.recording.logs import opened, packed, predicted, prompt_set, stepped
from tests.tui.story import Story
from tui.marks import marks, next_mark
from tui.playing import SPEEDS, Clock, Elapsed, Replay, span_ms

SPANS = [500.0, 20.0, 30.0, 10.0, 40.0]


def columns_of(spans: list[float], waited: float = 0.0) -> Columns:
    columns = Columns()
    log = [opened(), prompt_set()]
    for step, ms in enumerate(spans):
        log += [predicted(step, waited_ms=waited), stepped(step, total_ms=ms)]
    columns.extend(enumerate(packed(log)))
    return columns


@pytest.mark.parametrize("speed", SPEEDS)
def test_each_step_comes_when_it_came(speed: float) -> None:
    columns = columns_of(SPANS)
    clock, ends = Clock(), list(accumulate(SPANS[1:]))
    clock.set(0, 7.0)
    for ms in (0, 5, 19, 21, 49, 51, 59.9, 60.1, 99, 101, 500):
        step = clock.due(columns, 4, speed, 7.0 + ms / 1000 / speed)
        assert step == sum(end <= ms for end in ends)


def test_uneven_looks_lose_no_time() -> None:
    columns = columns_of([1.0] * 1001)
    clock = Clock()
    clock.set(0, 0.0)
    now = 0.0
    for k in range(100):
        now += 0.0007 * (k % 5)
        clock.due(columns, 1000, 2.0, now)
    assert abs(clock.due(columns, 1000, 2.0, now) - now * 2000) < 1.001


def test_the_wait_is_until_the_next_step() -> None:
    columns = columns_of(SPANS, waited=10.0)
    clock = Clock()
    clock.set(0, 0.0)
    assert clock.wait_s(columns, 4, 2.0, 0.005) == pytest.approx((20 + 10) / 2000 - 0.005)
    clock.set(4, 0.0)
    assert clock.wait_s(columns, 4, 2.0, 9.0) is None


def test_at_the_head_time_does_not_pile_up() -> None:
    columns = columns_of(SPANS)
    clock = Clock()
    clock.set(1, 0.0)
    assert clock.due(columns, 1, 1.0, 60.0) == 1
    assert clock.due(columns, 4, 1.0, 60.001) == 1
    assert clock.due(columns, 4, 1.0, 60.031) == 2


def test_what_is_lost_takes_no_time() -> None:
    columns = columns_of([1.0, 2.0])
    columns.skip(columns.next + 4)
    columns.extend([(columns.next, packed([stepped(4, total_ms=3.0)])[0])])
    assert [span_ms(columns, k) for k in range(len(columns))] == [1.0, 2.0, 0.0, 0.0, 3.0]


def test_elapsed_is_the_sum_so_far_and_follows_the_path() -> None:
    columns = columns_of(SPANS)
    elapsed = Elapsed()
    sums = list(accumulate(SPANS))
    for step in (4, 0, 2):
        assert elapsed.at(columns, step) == pytest.approx(sums[step] / 1000)
    assert elapsed.at(columns, -1) == 0.0
    log = packed([stepped(5, total_ms=100.0)])
    columns.extend([(columns.next, log[0])])
    assert elapsed.at(columns, 5) == pytest.approx((sums[-1] + 100) / 1000)
    assert elapsed.at(Columns(), 0) == 0.0


def test_speeds_double_within_their_bounds() -> None:
    replay = Replay(name="a", reason="")
    for _ in range(20):
        replay.faster(1)
    assert replay.speed == SPEEDS[-1]
    replay.faster(-1)
    assert replay.speed == SPEEDS[-2]


def test_marks_are_conditions_and_branches_of_the_path() -> None:
    story = Story().predict()
    story.tokens(*[(b" a", 0.5)] * 6)
    story.branch(2)
    story.predict().tokens((b" b", 0.5))
    columns = Columns()
    columns.extend(enumerate(story.log))
    columns.fired.append((1, 3))
    columns.fired_on.append(0)
    assert [(step, str(said)) for step, said in marks(columns)] == [
        (1, "condition 3"),
        (2, "branch 1 leaves 0"),
    ]
    assert next_mark(columns, 0, 1) == (1, "condition 3")
    assert next_mark(columns, 1, 1) == (2, "branch 1 leaves 0")
    assert next_mark(columns, 3, -1) == (2, "branch 1 leaves 0")
    assert next_mark(columns, 2, 1) is None
