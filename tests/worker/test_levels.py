"""The distinct values of a row, against counting them one by one."""

import math
from collections import Counter
from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.worker.levels import Levels, Weighed, levels_of

pytestmark = pytest.mark.engine
halves = st.floats(width=16, allow_nan=False, allow_infinity=False) | st.just(-math.inf)


def told(levels: Levels) -> list[tuple[float, int]]:
    return list(zip(levels.values.tolist(), levels.counts.tolist(), strict=True))


def counted(row: torch.Tensor) -> list[tuple[float, int]]:
    return sorted(Counter(row.double().tolist()).items(), reverse=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@given(values=st.lists(halves | st.sampled_from([0.0, -0.0, 1.5]), min_size=1, max_size=40))
def test_every_value_once(dtype: torch.dtype, values: list[float]) -> None:
    row = torch.tensor(values, dtype=torch.float64).to(dtype)
    levels = levels_of(row)
    assert levels is not None
    assert told(levels) == counted(row)


@given(st.lists(st.integers(-9, 9), min_size=2, max_size=30), st.data())
def test_changed_values_count_anew(values: list[int], data: st.DataObject) -> None:
    row = torch.tensor(values, dtype=torch.bfloat16)
    levels = levels_of(row)
    assert levels is not None
    ids = sorted(data.draw(st.sets(st.integers(0, len(values) - 1))))
    after = row.float()
    after[ids] = after[ids] * 1.7 - 0.3
    assert told(levels.changed(row[ids].float(), after[ids])) == counted(after)


def test_a_row_in_32_bits_has_none() -> None:
    assert levels_of(torch.zeros(4)) is None


@given(
    st.lists(st.integers(-12, 12).map(lambda x: x / 4), min_size=1, max_size=30),
    st.floats(0, 1),
    st.booleans(),
)
def test_places_by_a_running_sum(values: list[float], share: float, beyond: bool) -> None:
    levels = levels_of(torch.tensor(values, dtype=torch.bfloat16))
    assert levels is not None
    ordered = sorted(values, reverse=True)
    weighed = Weighed(levels, ordered[0], 0.7)
    weights = [math.exp((value - ordered[0]) / 0.7) for value in ordered]
    sums = list(accumulate(weights))
    target = share * sums[-1]
    if any(abs(x - target) < 1e-9 for x in (0.0, *sums)):
        return
    place = weighed.reaching(target, beyond=beyond)
    assert place is not None
    count = 1 + next(i for i, x in enumerate(sums) if x > target)
    nth = count - ordered.index(ordered[count - 1])
    assert (place.count, place.value, place.nth) == (count, ordered[count - 1], nth)
    assert place.mass == pytest.approx(sums[count - 1])
    assert weighed.after(count).mass == pytest.approx(sums[count - 1])
    assert weighed.at_least(weights[count - 1] * 0.999) == ordered.count(place.value) - nth + count
