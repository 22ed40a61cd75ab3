"""What is far off from what is around it."""

from tui.widgets.sieve import FAR, LEAST, Sieve


def far_off(ys: list[float]) -> list[int]:
    """Places of the points that are judged far off in the end."""
    sieve, judged = Sieve(), []
    for x, y in enumerate(ys):
        judged += sieve.add(x, y)
    judged += sieve.first()
    assert [one.x for one in judged] == list(range(len(ys)))
    return [int(one.x) for one in judged if one.far]


def test_one_far_above_the_others_is_told_wherever_it_is() -> None:
    for place in range(40):
        ys = [14.0 + k % 3 for k in range(40)]
        ys[place] = 40_000.0
        assert far_off(ys) == [place]


def test_growth_is_ordinary() -> None:
    assert far_off([10.0 + 0.5 * k for k in range(1000)]) == []


def test_another_level_is_ordinary_after_a_while() -> None:
    found = far_off([10.0] * 50 + [10.0 * FAR + 1] * 100)
    assert found
    assert found == list(range(50, 50 + len(found)))
    assert len(found) < 40


def test_two_points_are_too_few_to_tell() -> None:
    assert far_off([10.0, 40_000.0]) == []
    assert far_off([10.0, 11.0, 40_000.0]) == [2]


def test_others_than_plain_ones_count_nowhere() -> None:
    sieve = Sieve()
    for x in range(LEAST):
        sieve.add(x, 10.0)
    (point,) = sieve.add(LEAST, 5000.0, "other")
    assert not point.far
    (point,) = sieve.add(LEAST, 5000.0, "pause")
    assert point.far
    (point,) = sieve.add(LEAST, 30.0, "pause")
    assert not point.far
    (point,) = sieve.add(LEAST + 1, 41.0)
    assert point.far


def test_of_a_session_that_is_stepped_by_hand_few_points_wait_for_a_judgement() -> None:
    sieve = Sieve()
    judged = [one for x in range(5000) for one in sieve.add(x, 14.0, "pause")]
    waiting = sieve.first()
    assert len(waiting) < 500
    assert [one.x for one in (*judged, *waiting)] == list(range(5000))
    assert not any(one.far for one in judged)
