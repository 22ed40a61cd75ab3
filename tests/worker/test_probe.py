"""Figures and candidates of a row, against plain float64 arithmetic."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.values import DroppedBy, Sampler
from engine_daemon.worker.backends.base import Report
from engine_daemon.worker.figures import Figures, figures
from engine_daemon.worker.order import Desk, Order
from engine_daemon.worker.probe import RowDistribution

pytestmark = pytest.mark.engine
GREEDY = Sampler()


def of(row: torch.Tensor) -> Figures:
    return RowDistribution(row).figures


def report(row: torch.Tensor, k: int, sampler: Sampler = GREEDY) -> Report:
    return RowDistribution(row).evaluate(sampler, []).report(k)


logits = st.floats(-60, 60, width=32) | st.sampled_from([-math.inf, 0.0, 1.5])


@given(st.lists(logits, min_size=1, max_size=40).filter(lambda x: max(x) > -math.inf))
def test_figures_equal_plain_arithmetic(values: list[float]) -> None:
    top = max(values)
    total = math.fsum(math.exp(x - top) for x in values)
    probs = [math.exp(x - top) / total for x in values]
    found = of(torch.tensor(values))
    assert found.logsumexp == pytest.approx(top + math.log(total), rel=1e-6, abs=1e-6)
    entropy = -math.fsum(p * math.log2(p) for p in probs if p > 0)
    assert found.entropy_bits == pytest.approx(entropy, rel=1e-4, abs=1e-5)

    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    k = min(3, len(values))
    shown = report(torch.tensor(values), 3)
    assert shown.ids == order[:k]
    assert shown.logits == [values[i] for i in order[:k]]
    assert shown.ties_cut == (len(values) > k and values[order[k]] == values[order[k - 1]])
    second = probs[order[1]] if len(order) > 1 else 0.0
    assert shown.margin == pytest.approx(probs[order[0]] - second, abs=1e-6)
    tail = math.fsum(probs[i] for i in order[k:])
    assert shown.tail_prob == pytest.approx(tail, rel=1e-3, abs=1e-12)


def test_probabilities_sum_to_one_over_a_large_vocabulary() -> None:
    row = (torch.randn(150_000, generator=torch.Generator().manual_seed(1)) * 4).bfloat16()
    whole = report(row, row.numel())
    assert len(whole.ids) == row.numel()
    total = math.fsum(math.exp(x - whole.logsumexp) for x in whole.logits)
    assert total == pytest.approx(1.0, abs=1e-6)
    assert whole.tail_prob == 0.0
    assert not whole.ties_cut
    few = report(row, 20)
    inside = math.fsum(math.exp(x - few.logsumexp) for x in few.logits)
    assert inside + few.tail_prob == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_figures_by_values_equal_figures_by_tokens(dtype: torch.dtype) -> None:
    row = (torch.randn(150_000, generator=torch.Generator().manual_seed(1)) * 4).to(dtype)
    row[::7] = -math.inf
    by_values, by_tokens = RowDistribution(row).figures, of(row.float())
    assert by_values.logsumexp == pytest.approx(by_tokens.logsumexp, rel=1e-6)
    assert by_values.entropy_bits == pytest.approx(by_tokens.entropy_bits, rel=1e-5)
    probs = torch.softmax(row.double(), 0).sort(descending=True).values
    assert report(row, 20).tail_prob == pytest.approx(float(probs[20:].sum()), rel=1e-9)


@pytest.mark.parametrize("wrong", [math.nan, -math.nan, math.inf])
def test_what_is_no_distribution_over_a_large_vocabulary(wrong: float) -> None:
    row = torch.randn(150_000).bfloat16()
    row[77_777] = wrong
    with pytest.raises(InspectError, match="NaN or infinite"):
        report(row, 20)
    with pytest.raises(InspectError, match="NaN or infinite"):
        report(torch.full((150_000,), -math.inf, dtype=torch.bfloat16), 20)


def test_what_a_desk_held_before_changes_nothing() -> None:
    row = torch.randn(1000) * 5
    desk = Desk(1000)
    desk.lay(torch.full((1000,), math.nan))
    desk.weights[:] = math.nan
    assert RowDistribution(row, desk).figures == of(row)


@given(st.lists(logits, min_size=1, max_size=300).filter(lambda x: max(x) > -math.inf))
def test_a_device_weighs_a_row_as_the_host_does(values: list[float]) -> None:
    row = torch.tensor(values)
    desk = Desk(len(values))
    desk.lay(row)
    here, there = figures(Order(row, desk), desk), figures(Order(row))
    assert here.head == pytest.approx(there.head, rel=1e-6, abs=1e-30)
    assert here.rest == pytest.approx(there.rest, rel=1e-6, abs=1e-30)
    assert here.entropy_bits == pytest.approx(there.entropy_bits, rel=1e-4, abs=1e-5)


def test_a_tiny_tail_is_not_lost_in_rounding() -> None:
    row = torch.tensor([40.0, 0.0, 0.0])
    assert report(row, 1).tail_prob == pytest.approx(2 * math.exp(-40), rel=1e-5)


def test_ties_at_the_cut() -> None:
    row = torch.tensor([1.0, 2.0, 2.0, 2.0])
    assert (report(row, 2).ids, report(row, 2).ties_cut) == ([1, 2], True)
    assert (report(row, 3).ids, report(row, 3).ties_cut) == ([1, 2, 3], False)


def test_masked_tokens() -> None:
    row = torch.tensor([-math.inf, 1.0, -math.inf, 0.0])
    shown = report(row, 4, Sampler(greedy=False))
    assert shown.ids == [1, 3, 0, 2]
    assert shown.logits[2:] == [-math.inf, -math.inf]
    assert shown.dropped_by == [0, 0, int(DroppedBy.MASK), int(DroppedBy.MASK)]
    assert shown.final_logprobs[2:] == [-math.inf, -math.inf]
    assert math.exp(shown.final_logprobs[0]) == pytest.approx(1 / (1 + math.exp(-1)))
    assert shown.entropy_bits == pytest.approx(report(torch.tensor([1.0, 0.0]), 2).entropy_bits)


@pytest.mark.parametrize(
    "row", [[math.nan, 1.0], [1.0, math.inf], [-math.inf] * 3, [1.0, math.nan, -math.inf]]
)
def test_what_is_no_distribution(row: list[float]) -> None:
    with pytest.raises(InspectError) as caught:
        RowDistribution(torch.tensor(row)).evaluate(GREEDY, [])
    assert (caught.value.code, caught.value.exit_code) == ("engine", Exit.ENGINE)


def test_choices_carry_their_own_values() -> None:
    row = torch.tensor([1.0, 3.0, 2.0, 3.0])
    evaluation = RowDistribution(row).evaluate(GREEDY, [])
    pick = evaluation.pick(0.7)
    assert (pick.id, pick.logit, pick.final_logprob, pick.rank) == (1, 3.0, 0.0, 1)
    assert (pick.how, pick.draw) == ("greedy", None)
    forced = evaluation.forced(2)
    assert (forced.id, forced.logit, forced.final_logprob) == (2, 2.0, -math.inf)
    assert (forced.rank, forced.how, forced.draw) == (3, "forced", None)
    assert evaluation.forced(3).rank == 1
    sampled = RowDistribution(row).evaluate(Sampler(greedy=False), []).pick(0.9999)
    assert (sampled.id, sampled.how, sampled.draw, sampled.rank) == (0, "sampled", 0.9999, 4)
    for token_id in (-1, 4):
        with pytest.raises(InspectError) as caught:
            evaluation.forced(token_id)
        assert caught.value.code == "bad_arg"


def test_rank_far_down() -> None:
    row = torch.arange(1000.0).flip(0)
    evaluation = RowDistribution(row).evaluate(GREEDY, [])
    assert [evaluation.forced(i).rank for i in (0, 63, 64, 500, 999)] == [1, 64, 65, 501, 1000]


def test_penalties_move_the_pick_but_not_the_raw_order() -> None:
    row = torch.tensor([3.0, 2.9])
    evaluation = RowDistribution(row).evaluate(Sampler(presence_penalty=1.0), [0])
    assert evaluation.pick(0.0).id == 1
    assert evaluation.pick(0.0).rank == 2
    shown = evaluation.report(2)
    assert shown.ids == [0, 1]
    assert shown.logits == pytest.approx([3.0, 2.9])
    assert shown.dropped_by == [int(DroppedBy.GREEDY), int(DroppedBy.KEPT)]


def test_another_sampler_on_the_same_row() -> None:
    distribution = RowDistribution(torch.randn(500, generator=torch.Generator().manual_seed(5)))
    one = distribution.evaluate(GREEDY, []).report(10)
    two = distribution.evaluate(Sampler(greedy=False, top_k=3), []).report(10)
    assert (one.ids, one.logits, one.logsumexp) == (two.ids, two.logits, two.logsumexp)
    assert two.dropped_by == [0, 0, 0, *[int(DroppedBy.TOP_K)] * 7]


@pytest.mark.parametrize("k", [64, 65, 300, 900, 999])
@pytest.mark.parametrize("spread", [1.0, 6.0])
def test_a_tail_beyond_any_number_of_candidates(k: int, spread: float) -> None:
    row = torch.randn(1000, generator=torch.Generator().manual_seed(2)) * spread
    probs = torch.softmax(row.double(), 0).sort(descending=True).values
    assert report(row, k).tail_prob == pytest.approx(float(probs[k:].sum()), rel=1e-5, abs=0.0)


def test_masked_tokens_are_no_tail() -> None:
    row = torch.full((1000,), -math.inf)
    row[:500] = torch.randn(500, generator=torch.Generator().manual_seed(3)) * 6
    assert [report(row, k).tail_prob for k in (500, 700, 999)] == [0.0, 0.0, 0.0]
    assert report(row, 499).tail_prob > 0.0


@pytest.mark.parametrize("value", [-300.0, -38.0, 0.0, 30.0, 300.0])
def test_of_equal_tokens_the_entropy_is_the_largest_there_is(value: float) -> None:
    assert of(torch.full((49_152,), value)).entropy_bits == pytest.approx(
        math.log2(49_152), rel=1e-7
    )


@pytest.mark.parametrize("top", [-60.0, 0.0, 25.0, 100.0])
def test_the_entropy_of_a_real_sized_row(top: float) -> None:
    """As near to float64 as fp32 weights allow, wherever the row lies."""
    row = torch.randn(49_152, generator=torch.Generator().manual_seed(4)) * 3 + top
    probs = torch.softmax(row.double(), 0)
    bits = float(-(probs * probs.log2()).sum())
    assert of(row).entropy_bits == pytest.approx(bits, abs=1e-5)
