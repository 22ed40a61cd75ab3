"""Fits against known curves and against numbers worked out by hand."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.recording.fits import LEAST_STEPS, LineFit, curve_between

numbers = st.floats(-100, 100)


@given(numbers, numbers, st.integers(LEAST_STEPS, 60), st.integers(0, 100_000))
def test_a_line_is_found_again(constant: float, slope: float, count: int, first: int) -> None:
    fit = LineFit()
    for x in range(first, first + count):
        fit.add(x, constant + slope * x)
    assert fit.slope == pytest.approx(slope, abs=1e-5)
    assert fit.constant == pytest.approx(constant, abs=2.0)


def test_noise_around_a_line_worked_out_by_hand() -> None:
    fit = LineFit()
    for x, y in enumerate([1.0, 3.0, 2.0, 5.0, 4.0, 7.0, 6.0, 8.0]):
        fit.add(x, y)
    assert fit.slope == pytest.approx(39 / 42)
    assert fit.constant == pytest.approx(4.5 - 3.5 * 39 / 42)


@pytest.mark.parametrize("points", [[], [(3, 1.0)] * 20, [(x, 1.0) for x in range(7)]])
def test_too_little_to_tell(points: list[tuple[float, float]]) -> None:
    fit = LineFit()
    for x, y in points:
        fit.add(x, y)
    assert (fit.slope, fit.constant) == (None, None)


@given(numbers, numbers, st.floats(0, 1))
def test_a_parabola_is_found_again_and_ends_at_the_points(a: float, b: float, c: float) -> None:
    points = [(n, a + b * n + c * n * n) for n in (8.0, 128.0, 512.0, 1024.0)]
    curve = curve_between(points, 41)
    assert [curve[0][0], curve[-1][0], len(curve)] == [8.0, 1024.0, 41]
    for x, y in curve:
        assert y == pytest.approx(a + b * x + c * x * x, rel=1e-6, abs=1e-3)


def test_two_points_are_a_line_and_one_is_nothing() -> None:
    assert curve_between([(10.0, 1.0), (20.0, 3.0)], 3) == pytest.approx(
        [(10.0, 1.0), (15.0, 2.0), (20.0, 3.0)]
    )
    assert curve_between([(10.0, 1.0), (10.0, 2.0)], 3) == []


def test_the_error_of_a_slope_is_that_of_the_textbook() -> None:
    xs = [float(k) for k in range(20)]
    ys = [3.0 + 0.5 * x + (0.3 if k % 2 else -0.3) for k, x in enumerate(xs)]
    fit = LineFit()
    for x, y in zip(xs, ys, strict=True):
        fit.add(x, y)
    slope, constant = statistics.linear_regression(xs, ys)
    left = sum((y - constant - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    spread = sum((x - statistics.fmean(xs)) ** 2 for x in xs)
    assert fit.slope == pytest.approx(slope)
    assert fit.slope_error == pytest.approx(math.sqrt(left / 18 / spread))
    assert fit.mean == pytest.approx(statistics.fmean(ys))
    assert LineFit().slope_error is None
