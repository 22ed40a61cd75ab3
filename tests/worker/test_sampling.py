"""The sampler against a slow float64 reference and against transformers' own processors."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine_daemon.errors import InspectError
from engine_daemon.protocol.values import DroppedBy, Sampler
from engine_daemon.worker.levels import Levels, levels_of
from engine_daemon.worker.order import Order, leading, leading_there
from engine_daemon.worker.sampling import Final, penalise

pytestmark = pytest.mark.engine
KEPT, NEAR = int(DroppedBy.KEPT), 1e-9


def final_of(
    row: torch.Tensor,
    sampler: Sampler,
    path: Sequence[int] = (),
    levels: Callable[[], Levels | None] = lambda: None,
) -> Final:
    return Final(Order(row), sampler, path, levels)


# A slow reference -------------------------------------------------------------------------------


def reference_penalties(row: list[float], sampler: Sampler, path: list[int]) -> list[float]:
    penalised = list(row)
    for token_id, times in Counter(path).items():
        value = row[token_id]
        factor = sampler.repetition_penalty
        value = value * factor if value < 0 else value / factor
        value -= sampler.presence_penalty + times * sampler.frequency_penalty
        penalised[token_id] = value
    return penalised


class Reference:
    """CONTRACT's waterfall, one list comprehension a stage; `close`: a cut fell on a rounding."""

    def __init__(self, row: list[float], sampler: Sampler, path: list[int]) -> None:
        values = reference_penalties(row, sampler, path)
        top = max(values)
        self.order = sorted(range(len(row)), key=lambda i: (-values[i], i))
        self.stage = [KEPT] * len(row)
        self.close = False
        kept = self.order
        if sampler.greedy:
            kept = self._keep(kept, kept[:1], DroppedBy.GREEDY)
            self.probs = {kept[0]: 1.0}
            return
        weight = [math.exp((x - top) / sampler.temperature) for x in values]
        if 0 < sampler.top_k < len(kept):
            last = values[kept[sampler.top_k - 1]]
            kept = self._keep(kept, [i for i in kept if values[i] >= last], DroppedBy.TOP_K)
        if sampler.top_p < 1.0:
            kept = self._keep(kept, self._nucleus(kept, weight, sampler.top_p), DroppedBy.TOP_P)
        if sampler.min_p > 0.0:
            total = sum(weight[i] for i in kept)
            share = [weight[i] / total for i in kept]
            floor = sampler.min_p * max(share)
            self.close |= any(abs(x - floor) < NEAR for x in share)
            strong = [i for i, x in zip(kept, share, strict=True) if x >= floor]
            kept = self._keep(kept, strong, DroppedBy.MIN_P)
        possible = [i for i in kept if values[i] > -math.inf]
        kept = self._keep(kept, possible, DroppedBy.MASK)
        total = math.fsum(weight[i] for i in kept)
        self.probs = {i: weight[i] / total for i in kept}

    def _nucleus(self, kept: list[int], weight: list[float], top_p: float) -> list[int]:
        total, running = math.fsum(weight[i] for i in kept), 0.0
        for n, i in enumerate(kept, 1):
            running += weight[i] / total
            self.close |= abs(running - top_p) < NEAR
            if running >= top_p:
                return kept[:n]
        return kept

    def _keep(self, before: list[int], after: list[int], stage: DroppedBy) -> list[int]:
        for i in set(before) - set(after):
            self.stage[i] = int(stage)
        return after

    def before(self, token_id: int) -> float:
        """The mass in front of a token that was kept."""
        order = list(self.probs)
        return math.fsum(self.probs[i] for i in order[: order.index(token_id)])

    def draw(self, u: float) -> int:
        running = 0.0
        for i in self.probs:
            running += self.probs[i]
            self.close |= abs(running - u) < NEAR
            if running > u:
                return i
        return list(self.probs)[-1]


quarters = st.integers(-20, 20).map(lambda x: x / 4)
"""Sums and products of these are exact in fp32, so ties are the same ties everywhere."""
rows = st.lists(quarters | st.just(-math.inf), min_size=1, max_size=12).filter(
    lambda row: max(row) > -math.inf
)
samplers = st.builds(
    Sampler,
    greedy=st.booleans(),
    temperature=st.sampled_from([0.25, 0.7, 1.0, 1.5, 8.0]),
    top_k=st.integers(0, 13),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.5, 0.123, 1e-6]),
    min_p=st.sampled_from([0.0, 0.01, 0.17, 0.6, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 2.0, 0.5]),
    presence_penalty=st.sampled_from([0.0, 1.5, -0.25]),
    frequency_penalty=st.sampled_from([0.0, 0.5, -1.0]),
)


@pytest.mark.parametrize("half", [False, True])
@settings(max_examples=600)
@given(rows, samplers, st.data())
def test_waterfall_equals_reference(
    half: bool, row: list[float], sampler: Sampler, data: st.DataObject
) -> None:
    """`half`: by the levels of the row in 16 bits, in which these values are exact."""
    path = data.draw(st.lists(st.integers(0, len(row) - 1), max_size=6))
    u = data.draw(st.floats(0, 1, exclude_max=True))
    expected = Reference(row, sampler, path)
    drawn = expected.draw(u)
    assume(not expected.close)
    given_row = torch.tensor(row)
    levels = partial(levels_of, given_row.bfloat16() if half else given_row)
    final = final_of(given_row, sampler, path, levels=levels)
    stages, logprobs = final.judge(list(range(len(row))), row)
    assert stages == expected.stage
    for i, logprob in enumerate(logprobs):
        assert math.exp(logprob) == pytest.approx(expected.probs.get(i, 0.0), rel=1e-9, abs=1e-300)
    assert math.fsum(math.exp(x) for x in logprobs) == pytest.approx(1.0, rel=1e-12)
    assert final.draw(u) == drawn
    for i in expected.probs:
        assert final.before(i) == pytest.approx(expected.before(i), abs=1e-12)


@pytest.mark.parametrize("half", [False, True])
@settings(max_examples=60)
@given(st.integers(0, 2**32), samplers, st.floats(0, 1, exclude_max=True))
def test_larger_vocabulary_equals_reference(
    half: bool, seed: int, sampler: Sampler, u: float
) -> None:
    """Enough tokens that the prefix of the order has to grow; bf16, so that ties are common."""
    generator = torch.Generator().manual_seed(seed)
    row = (torch.randn(3000, generator=generator) * 2).bfloat16().float()
    row[::97] = -math.inf
    wide = Sampler(
        **{name: getattr(sampler, name) for name in ("greedy", "temperature", "top_p", "min_p")},
        top_k=sampler.top_k * 150,
    )
    expected = Reference(row.tolist(), wide, [])
    drawn = expected.draw(u)
    assume(not expected.close)
    final = final_of(row, wide, levels=partial(levels_of, row.bfloat16() if half else row))
    stages, logprobs = final.judge(list(range(3000)), row.tolist())
    assert stages == expected.stage
    assert final.draw(u) == drawn
    for i in (drawn, *list(expected.probs)[:: max(1, len(expected.probs) // 5)]):
        assert final.before(i) == pytest.approx(expected.before(i), rel=1e-6, abs=1e-9)
    for i, prob in expected.probs.items():
        assert math.exp(logprobs[i]) == pytest.approx(prob, rel=1e-6)


# transformers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "sampler",
    [
        Sampler(greedy=False, temperature=0.6),
        Sampler(greedy=False, top_k=7),
        Sampler(greedy=False, top_p=0.8),
        Sampler(greedy=False, top_p=0.97, temperature=1.4),
        Sampler(greedy=False, min_p=0.08),
        Sampler(greedy=False, temperature=0.8, top_k=50, top_p=0.9, min_p=0.05),
        Sampler(greedy=False, temperature=0.9, repetition_penalty=1.3, top_p=0.9),
    ],
)
def test_equals_the_processors_of_transformers(sampler: Sampler, seed: int) -> None:
    from transformers import LogitsProcessorList
    from transformers.generation import logits_process as hf

    row = torch.randn(800, generator=torch.Generator().manual_seed(seed)) * 3
    path = [3, 14, 15, 3, 700]
    steps: list[object] = []
    if sampler.repetition_penalty != 1.0:
        steps.append(hf.RepetitionPenaltyLogitsProcessor(sampler.repetition_penalty))
    steps.append(hf.TemperatureLogitsWarper(sampler.temperature))
    if sampler.top_k:
        steps.append(hf.TopKLogitsWarper(sampler.top_k))
    if sampler.top_p < 1.0:
        steps.append(hf.TopPLogitsWarper(sampler.top_p))
    if sampler.min_p:
        steps.append(hf.MinPLogitsWarper(sampler.min_p))
    theirs = LogitsProcessorList(steps)(torch.tensor([path]), row[None].clone())[0].softmax(0)
    stages, logprobs = final_of(row, sampler, path).judge(list(range(800)), row.tolist())
    ours = torch.tensor(logprobs).exp()
    assert [stage == KEPT for stage in stages] == (theirs > 0).tolist()
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_top_k_keeps_ties_as_transformers_does() -> None:
    from transformers.generation.logits_process import TopKLogitsWarper

    row = torch.tensor([1.0, 3.0, 2.0, 2.0, 2.0, 0.0])
    theirs = TopKLogitsWarper(2)(torch.zeros(1, 1, dtype=torch.long), row[None].clone())[0]
    stages, _ = final_of(row, Sampler(greedy=False, top_k=2)).judge(list(range(6)), row.tolist())
    assert [stage == KEPT for stage in stages] == (theirs > -math.inf).tolist()
    assert stages == [2, 0, 0, 0, 0, 2]


# Corners ----------------------------------------------------------------------------------------


def test_greedy_takes_the_lowest_id_among_equal_maxima() -> None:
    row = torch.tensor([0.0, 5.0, 1.0, 5.0, 5.0])
    assert final_of(row, Sampler()).draw(0.99) == 1
    assert final_of(row, Sampler(repetition_penalty=2.0), [1]).draw(0.0) == 3
    assert final_of(row, Sampler(frequency_penalty=9.0), [1, 3, 4]).draw(0.0) == 2


def test_temperature_zero_is_greedy() -> None:
    final = final_of(torch.tensor([0.0, 2.0, 1.0]), Sampler(greedy=False, temperature=0.0))
    assert final.greedy
    assert final.draw(0.999) == 1


def test_neutral_penalties_return_the_row_itself() -> None:
    row = torch.tensor([1.0, 2.0])
    assert penalise(row, Sampler(), [0, 1]) is row
    assert penalise(row, Sampler(repetition_penalty=2.0), []) is row


def test_penalties_by_hand() -> None:
    sampler = Sampler(repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25)
    row = torch.tensor([4.0, -4.0, 4.0, -math.inf])
    penalised = penalise(row, sampler, [0, 1, 1, 3, 99])
    assert penalised.tolist() == [1.25, -9.0, 4.0, -math.inf]
    assert row.tolist() == [4.0, -4.0, 4.0, -math.inf]


def test_a_draw_at_the_very_end_takes_a_possible_token() -> None:
    row = torch.tensor([0.0, -1000.0, -math.inf, 0.0])
    final = final_of(row, Sampler(greedy=False))
    almost = math.nextafter(1.0, 0.0)
    assert final.draw(almost) == 3
    assert final.draw(0.0) == 0
    assert final.draw(0.5) == 3


def test_a_mass_that_is_reached_exactly_is_reached() -> None:
    row = torch.zeros(4)
    for top_p, kept in ((0.25, 1), (0.5, 2), (0.75, 3)):
        final = final_of(row, Sampler(greedy=False, top_p=top_p))
        stages, _ = final.judge([0, 1, 2, 3], row.tolist())
        assert stages == [KEPT] * kept + [int(DroppedBy.TOP_P)] * (4 - kept)


def test_everything_masked_is_an_error() -> None:
    with pytest.raises(InspectError) as caught:
        final_of(torch.full((5,), -math.inf), Sampler())
    assert caught.value.code == "engine"


def test_expected_frequencies() -> None:
    """Draws at evenly spread numbers come out as often as the probabilities say."""
    row = torch.tensor([2.0, 1.0, 0.0, -1.0])
    final = final_of(row, Sampler(greedy=False, temperature=0.8))
    counts = Counter(final.draw((i + 0.5) / 2000) for i in range(2000))
    _, logprobs = final.judge(list(range(4)), row.tolist())
    for i, logprob in enumerate(logprobs):
        assert counts[i] == pytest.approx(2000 * math.exp(logprob), abs=1)


@pytest.mark.parametrize("size", [1, 2, 5, 63, 1000, 5003])
@pytest.mark.parametrize("k", [1, 2, 20, 300])
def test_leading_equals_a_full_sort(size: int, k: int) -> None:
    for spread in (0.01, 3.0):
        generator = torch.Generator().manual_seed(size + k)
        row = (torch.randn(size, generator=generator) * spread).bfloat16().float()
        row[:: 7 if size > 7 else 2] = -math.inf
        values = row.tolist()
        expected = sorted(range(size), key=lambda i: (-values[i], i))[:k]
        ways = [leading, leading_there] if k < size else [leading]
        for way in ways:
            ids, found = way(row, k)
            assert ids == expected
            assert found == [values[i] for i in expected]
    assert leading(torch.zeros(size), k)[0] == list(range(min(k, size)))


# Wide nuclei -------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.3, 1.5, 3.0])
@pytest.mark.parametrize("rounded", [None, torch.bfloat16, torch.float16])
def test_a_wide_nucleus_is_found_without_sorting_the_vocabulary(
    monkeypatch: pytest.MonkeyPatch, spread: float, rounded: torch.dtype | None
) -> None:
    size, top_p, temperature = 20_000, 0.9, 1.3
    torch.manual_seed(int(10 * spread))
    row = torch.randn(size) * spread + 12
    row[5] = -math.inf
    made = row if rounded is None else row.to(rounded)
    row = made.float()
    order = torch.sort(row, descending=True, stable=True).indices
    probs = torch.softmax(row.double() / temperature, 0)[order]
    running = probs.cumsum(0)
    count = int(torch.searchsorted(running, top_p)) + 1
    assert count > 512
    longest, sort = 0, torch.sort

    def measured(values: torch.Tensor, *rest: object, **named: object) -> object:
        nonlocal longest
        longest = max(longest, values.numel())
        return sort(values, *rest, **named)  # type: ignore[call-overload]  # as it was called

    monkeypatch.setattr(torch, "sort", measured)
    sampler = Sampler(greedy=False, temperature=temperature, top_p=top_p)
    final = final_of(row, sampler, levels=partial(levels_of, made))
    ids = order[[0, 600, count - 1, count, count + 1]].tolist()
    stages, logprobs = final.judge(ids, row[ids].tolist())
    assert stages == [KEPT] * 3 + [int(DroppedBy.TOP_P)] * 2
    mass = float(running[count - 1])
    assert logprobs[0] == pytest.approx(math.log(float(probs[0]) / mass), abs=1e-9)
    for u in (0.0, 0.001, 0.25, 0.5, 0.9, 0.999, 1 - 2**-53):
        at = min(int(torch.searchsorted(running, u * mass, right=True)), count - 1)
        assert final.draw(u) == int(order[at]), u
    assert longest < size / 4
