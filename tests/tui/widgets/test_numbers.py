"""Bars, candidates, curves and plots: pure functions of numbers."""

import math

import pytest

from tests.tui.story import FIRST, candidates
from tui.widgets import plot
from tui.widgets.bars import bar
from tui.widgets.curve import Curve
from tui.widgets.plot import DOT, MARK, Series, plot_lines
from tui.widgets.top import Top


@pytest.mark.parametrize(
    ("fraction", "shown"),
    [(0.0, "    "), (1.0, "████"), (0.5, "██  "), (0.001, "▏   "), (math.nan, "    "), (2, "████")],
)
def test_bar(fraction: float, shown: str) -> None:
    assert bar(fraction, 4) == shown


def test_bar_without_room() -> None:
    assert bar(0.5, 0) == ""


def test_top_unpacks_as_far_as_asked() -> None:
    many = [(k, b"t%d" % k, 1 / 2000) for k in range(2000)]
    top = Top(candidates(many), 0.0)
    assert top.count == 2000
    assert [row.id for row in top.rows(0, 3)] == [0, 1, 2]
    assert len(top._rows) == 64
    assert top.rows(1990, 2100)[-1].id == 1999
    assert top.row(2000) is None
    assert top.find(1234) == 1234
    assert top.find(99_999) is None


def test_top_of_few() -> None:
    top = Top(candidates(FIRST), 0.0)
    assert top.rows(0, 100)[0].piece == b" Ku"


def test_curve_is_bounded_and_keeps_the_mean() -> None:
    curve = Curve()
    for x in range(100_000):
        curve.add(x, 5.0)
    assert len(curve.xs()) <= 512
    assert curve.seen == 100_000
    assert curve.each >= 256
    assert curve.ys() == pytest.approx([5.0] * len(curve.ys()))
    assert curve.xs() == sorted(curve.xs())


def test_plot_is_as_large_as_asked() -> None:
    lines = plot_lines(
        [Series([1.0, 2, 3], [5.0, 6, 7]), Series([2.0], [8.0], MARK)], 60, 10, low=0, high=10
    )
    assert len(lines) == 10
    assert {len(line) for line in lines} == {60}
    assert sum(line.count(DOT) for line in lines) == 3
    assert any(MARK in line for line in lines)
    assert any("5┤" in line for line in lines)


def test_points_that_share_a_cell_are_drawn_once_and_none_goes_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    curve = Series([float(k) for k in range(5000)], [20 + k / 500 for k in range(5000)])
    handed: list[int] = []

    def all_points(one: Series, _across: float, _up: float) -> tuple[list[float], list[float]]:
        return list(one.xs), list(one.ys)

    def counted(one: Series, across: float, up: float) -> tuple[list[float], list[float]]:
        xs, ys = thinned(one, across, up)
        handed.append(len(xs))
        return xs, ys

    thinned = plot._thinned
    monkeypatch.setattr(plot, "_thinned", counted)
    lines = plot_lines([curve], 76, 14, low=0, high=35)
    assert handed[0] < 250
    monkeypatch.setattr(plot, "_thinned", all_points)
    drawn, all_drawn = dots(lines), dots(plot_lines([curve], 76, 14, low=0, high=35))
    assert drawn <= all_drawn
    assert {x for x, _ in drawn} == {x for x, _ in all_drawn}


def dots(lines: list[str]) -> set[tuple[int, int]]:
    return {(x, y) for y, line in enumerate(lines) for x, char in enumerate(line) if char == DOT}


def test_plot_of_nothing_or_nowhere() -> None:
    assert plot_lines([Series([], [])], 60, 10, low=0, high=1) == []
    assert plot_lines([Series([1.0], [1.0])], 5, 10, low=0, high=1) == []
    assert plot_lines([Series([1.0], [1.0])], 60, 10, low=0, high=2)
