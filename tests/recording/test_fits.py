"""Fits against known curves and against numbers worked out by hand."""

import math
import random
import statistics
from collections.abc import Iterable
from itertools import pairwise

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


def test_a_drift_that_lasts_is_no_growth() -> None:
    """Times that wander, as on a machine that others use, lean one way over a few steps: with the
    textbook's error a slope of nothing is denied far too often."""
    generator = random.Random(3)
    textbook = ours = 0
    for _ in range(200):
        fit, wander, ys = LineFit(), 0.0, []
        for x in range(60):
            wander = 0.8 * wander + generator.gauss(0, 1)
            ys.append(60 + wander)
            fit.add(x, ys[-1])
        slope, error = fit.slope, fit.slope_error
        assert slope is not None
        assert error is not None
        plain, constant = statistics.linear_regression(range(60), ys)
        left = sum((y - constant - plain * x) ** 2 for x, y in enumerate(ys))
        textbook += abs(slope) > 3 * math.sqrt(left / 58 / (60 * (60**2 - 1) / 12))
        ours += abs(slope) > 3 * error
    assert textbook > 30
    assert ours < 10


def test_likeness_is_that_of_neighbours_left_over() -> None:
    xs = [8.0 + k for k in range(40)]
    ys = [20 + 0.1 * x + math.sin(x * 0.9) for x in xs]
    fit = LineFit()
    for x, y in zip(xs, ys, strict=True):
        fit.add(x, y)
    slope, constant = statistics.linear_regression(xs, ys)
    over = [y - constant - slope * x for x, y in zip(xs, ys, strict=True)]
    left = sum(e * e for e in over)
    alike = sum(a * b for a, b in pairwise(over)) / left
    alike += (2 + 4 * alike) / 40
    spread = sum((x - statistics.fmean(xs)) ** 2 for x in xs)
    error = math.sqrt((1 + alike) / (1 - alike) * left / 38 / spread)
    assert fit.slope_error == pytest.approx(error, rel=1e-6)


def fitted(ys: Iterable[float]) -> LineFit:
    fit = LineFit()
    for k, y in enumerate(ys):
        fit.add(8 + k, y)
    return fit


def in_blocks(length: int, steps: int, seed: int, two: bool) -> list[float]:
    """Times of a machine that others use: a pace for so many steps, then another one."""
    chance, times, pace = random.Random(seed), list[float](), 0.0
    for k in range(steps):
        if k % length == 0:
            pace = chance.choice([45.0, 90.0]) if two else chance.uniform(45, 90)
        times.append(pace + chance.gauss(0, 1))
    return times


@pytest.mark.parametrize("length", [1, 4, 8, 11, 16, 25, 40])
@pytest.mark.parametrize("steps", [12, 20, 33, 103])
def test_paces_that_change_in_blocks_are_no_growth(length: int, steps: int) -> None:
    told = sum(
        fitted(in_blocks(length, steps, seed, two)).grows
        for seed in range(200)
        for two in (True, False)
    )
    assert told < 8  # 2 %


def test_a_jump_from_one_pace_to_another_is_no_growth() -> None:
    """The textbook sees 1.3 ms a token in this, with an error of a tenth of that."""
    fit = fitted([45.0 + k % 3 for k in range(17)] + [90.0 + k % 3 for k in range(16)])
    assert fit.slope is not None
    assert fit.slope > 1
    assert not fit.grows


@pytest.mark.parametrize("steps", [12, 33, 103, 400])
def test_white_noise_is_no_growth(steps: int) -> None:
    def noise(seed: int) -> list[float]:
        chance = random.Random(seed)
        return [45 + chance.gauss(0, 3) for _ in range(steps)]

    assert sum(fitted(noise(seed)).grows for seed in range(200)) < 4


@pytest.mark.parametrize(("slope", "steps"), [(0.01, 2000), (0.05, 400), (0.25, 100)])
def test_a_real_growth_in_noise_is_told_with_its_size(slope: float, steps: int) -> None:
    for seed in range(20):
        chance = random.Random(seed)
        fit = fitted(20 + slope * (8 + k) + chance.gauss(0, 1) for k in range(steps))
        assert fit.grows
        assert fit.slope is not None
        assert fit.error is not None
        assert abs(fit.slope - slope) < 5 * fit.error
        assert fit.constant == pytest.approx(20, rel=0.1)


def test_steps_without_cache_are_told_within_twenty_and_to_the_end() -> None:
    """Each step reads everything again: 21 ms at 8 tokens, 669 ms at 1024."""

    def spent(steps: int, seed: int) -> list[float]:
        chance = random.Random(seed)
        return [
            (18.5 + 0.3 * n + 0.00033 * n * n) * (1 + chance.gauss(0, 0.01))
            for n in range(8, 8 + steps)
        ]

    for steps in (20, 60, 400, 1016):
        assert sum(fitted(spent(steps, seed)).grows for seed in range(20)) >= 19


def test_the_cheapest_step_is_known() -> None:
    assert fitted([3.0, 2.0, 5.0]).least == 2.0


@given(st.lists(st.floats(1, 100), min_size=12, max_size=120))
def test_parts_hold_every_point_once(ys: list[float]) -> None:
    fit = fitted(ys)
    parts = fit._parts(4)
    assert sum(part.many for part in parts) == len(ys)
    assert sum(part.v for part in parts) == pytest.approx(sum(y - ys[0] for y in ys), abs=1e-6)
