"""The sampler's rules on rows small enough to work out by hand."""

import math

import pytest

from engine_daemon.protocol.values import DroppedBy, Sampler
from engine_daemon.worker.reference_sampling import filtered, in_order, penalised

HALVES = [math.log(p) for p in (0.125, 0.5, 0.0625, 0.25, 0.0625)]
"""Probabilities 1/2, 1/4, 1/8, 1/16, 1/16 of the ids 1, 3, 0, 2, 4."""
KEPT = DroppedBy.KEPT


def sampled(**fields: float) -> Sampler:
    return Sampler(greedy=False, **fields)  # type: ignore[arg-type]  # checked by msgspec


def finals(logits: list[float], sampler: Sampler, path: tuple[int, ...] = ()) -> list[float]:
    return [math.exp(value) for value in filtered(logits, sampler, path).final_logprobs]


def test_order_is_by_logit_then_id() -> None:
    assert in_order(HALVES) == [1, 3, 0, 2, 4]
    assert in_order([1.0, 1.0, 2.0, 1.0]) == [2, 0, 1, 3]


def test_greedy_takes_the_lowest_of_equal_maxima() -> None:
    after = filtered([1.0, 3.0, 3.0], Sampler(), ())
    assert after.order == [1]
    assert after.final_logprobs == [-math.inf, 0.0, -math.inf]
    assert after.dropped_by == [DroppedBy.GREEDY, KEPT, DroppedBy.GREEDY]


def test_temperature_zero_is_greedy() -> None:
    assert filtered(HALVES, sampled(temperature=0.0), ()).order == [1]


def test_neutral_changes_nothing() -> None:
    assert finals(HALVES, sampled()) == pytest.approx([0.125, 0.5, 0.0625, 0.25, 0.0625])


def test_temperature_divides() -> None:
    weights = [p**2 for p in (0.125, 0.5, 0.0625, 0.25, 0.0625)]
    expected = [weight / sum(weights) for weight in weights]
    assert finals(HALVES, sampled(temperature=0.5)) == pytest.approx(expected)


def test_top_k_keeps_all_that_equal_the_kth() -> None:
    assert filtered(HALVES, sampled(top_k=4), ()).order == [1, 3, 0, 2, 4]
    after = filtered(HALVES, sampled(top_k=2), ())
    assert after.order == [1, 3]
    assert after.dropped_by[0] is DroppedBy.TOP_K


@pytest.mark.parametrize(("top_p", "kept"), [(0.01, 1), (0.49, 1), (0.51, 2), (0.76, 3), (1.0, 5)])
def test_top_p_is_the_shortest_prefix_that_reaches_it(top_p: float, kept: int) -> None:
    assert len(filtered(HALVES, sampled(top_p=top_p), ()).order) == kept


def test_min_p_is_relative_to_the_largest() -> None:
    after = filtered(HALVES, sampled(min_p=0.3), ())
    assert after.order == [1, 3]
    assert after.dropped_by[0] is DroppedBy.MIN_P


def test_each_filter_sees_what_the_one_before_left_renormalised() -> None:
    # After top-k 2 the probabilities are 2/3 and 1/3: a prefix of one reaches 0.6.
    after = filtered(HALVES, sampled(top_k=2, top_p=0.6), ())
    assert after.order == [1]
    assert after.dropped_by[3] is DroppedBy.TOP_P
    assert after.dropped_by[0] is DroppedBy.TOP_K


def test_a_masked_token_cannot_be_drawn() -> None:
    after = filtered([0.0, -math.inf, 0.0], sampled(), ())
    assert after.order == [0, 2]
    assert after.dropped_by[1] is DroppedBy.MASK
    assert after.pick(0.99999) == 2


def test_penalties_come_first_and_change_the_order() -> None:
    row = [2.0, 1.9, -1.0]
    assert penalised(row, Sampler(repetition_penalty=2.0), [0, 2, 2]) == [1.0, 1.9, -2.0]
    assert penalised(row, Sampler(presence_penalty=0.5), [0, 0]) == [1.5, 1.9, -1.0]
    assert penalised(row, Sampler(frequency_penalty=0.5), [0, 0]) == [1.0, 1.9, -1.0]
    assert filtered(row, Sampler(repetition_penalty=2.0), [0]).order == [1]


@pytest.mark.parametrize(
    ("u", "picked"),
    [(0.0, 1), (0.4999999, 1), (0.5000001, 3), (0.7499, 3), (0.7501, 0), (1 - 2**-53, 4)],
)
def test_the_draw_takes_the_first_whose_sum_exceeds_u(u: float, picked: int) -> None:
    assert filtered(HALVES, sampled(), ()).pick(u) == picked
