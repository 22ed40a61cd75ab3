"""COST PER STEP: what is drawn."""

import math
import re
import sys
import threading

import pytest

from engine_daemon.protocol.events import NaiveMeasured
from tests.tui.pilot import rows, screen, until
from tests.tui.story import Story
from tui.app import InspectApp
from tui.panes.base import Pane
from tui.panes.cost import CostPane
from tui.widgets import plot


def running() -> Story:
    story = Story().predict().stop().command("run_to", None)
    return story.tokens(*[(b" word", 0.5)] * 30)


async def test_measured_points_outweigh_marks() -> None:
    story = running()
    story.predict(after_pause=True).pick(7, b" x", 0.5, total=15.0)
    async with screen(story) as (_, app, _source):
        shown = "\n".join(rows(app, "cost")[1:])
        assert shown.count("•") > 10
        assert shown.count("▴") == 1
        palette = app.main.query_one("#cost", Pane).palette
        assert palette.plot.bold
        assert not palette.mark.bold


async def test_without_its_library_there_is_no_plot_and_all_else_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "plotext", None)
    monkeypatch.setattr(plot, "_over", threading.Event())
    monkeypatch.setattr(plot, "_missing", threading.Event())
    async with screen(running()) as (pilot, app, _source):
        await until(pilot, lambda: "plotext cannot be imported" in "".join(rows(app, "cost")))
        assert "ms a step" in rows(app, "cost")[0]
        await pilot.press("shift+tab", "shift+tab", "M")
        assert "ms so far" in rows(app, "cost")[0]
        assert plot.plot_lines([plot.Series([1, 2], [1, 2])], 76, 14, low=0, high=3) == []


async def test_cost_changes_what_it_draws() -> None:
    async with screen(running()) as (pilot, app, _source):
        assert "ms a step" in rows(app, "cost")[0]
        await pilot.press("shift+tab", "shift+tab", "M")
        assert "ms so far" in rows(app, "cost")[0]
        await pilot.press("M")
        assert "tokens a second" in rows(app, "cost")[0]


def cost_of(line: str) -> float:
    """The mean, or the constant part, that a caption names."""
    return float(re.split("mean|constant", line)[1].split()[0])


def plot_of(app: InspectApp) -> list[str]:
    """The cost pane without its captions."""
    return [line for line in rows(app, "cost")[1:] if not line.strip().startswith("derived")]


async def test_a_step_during_which_the_machine_stood_still_rules_neither_axis_nor_fit() -> None:
    plain = running()
    stood = running()
    stood.predict().pick(7, b" x", 0.5, total=40_000.0).tokens(*[(b" word", 0.5)] * 12)
    async with screen(plain) as (_, app, _source):
        constant = next(line for line in rows(app, "cost") if "derived" in line)
    async with screen(stood) as (_, app, _source):
        caption, fit, *plot = rows(app, "cost")
        assert "↑ 1 step far off: 40.0 s" in caption
        assert "41 steps, no ↑" in fit
        assert abs(cost_of(fit) - cost_of(constant)) < 1
        assert "↑40.0 s" in plot[0]
        assert "•" in "".join(plot[:3])  # not flat on the ground
        assert not any("000" in line for line in plot)


async def test_one_of_the_first_steps_may_be_far_off() -> None:
    story = Story().predict().stop().command("run_to", None).tokens(*[(b" word", 0.5)] * 3)
    story.predict().pick(7, b" x", 0.5, total=40_000.0).tokens((b" word", 0.5), (b" word", 0.5))
    async with screen(story) as (_, app, _source):
        assert "↑ 1 step far off: 40.0 s" in rows(app, "cost")[0]
        assert "40.0 s↑" in plot_of(app)[0] or "↑40.0 s" in plot_of(app)[0]
        assert sum(line.count("•") for line in plot_of(app)) >= 3


async def test_the_other_plots_say_what_they_leave_out() -> None:
    story = running()
    story.predict().pick(7, b" x", 0.5, total=40_000.0).tokens(*[(b" word", 0.5)] * 12)
    async with screen(story) as (pilot, app, _source):
        await pilot.press("shift+tab", "shift+tab", "M")
        assert "↑ 1 step far off: 40.0 s, left out" in rows(app, "cost")[0]
        assert "40 000" not in "\n".join(plot_of(app))
        await pilot.press("M")
        assert "↓ 1 step far off: 40.0 s" in rows(app, "cost")[0]
        assert "↓" in "\n".join(plot_of(app))


async def test_a_step_after_a_pause_is_on_the_axis_unless_it_is_far_off() -> None:
    story = running()
    story.predict(after_pause=True).pick(7, b" x", 0.5, total=40.0).tokens((b" word", 0.5))
    async with screen(story) as (_, app, _source):
        assert "far off" not in rows(app, "cost")[0]
        assert "▴" in "".join(plot_of(app)[:2])
    story = running()
    story.predict(after_pause=True).pick(7, b" x", 0.5, total=40_000.0).tokens((b" word", 0.5))
    async with screen(story) as (_, app, _source):
        assert "↑ 1 step far off: 40.0 s" in rows(app, "cost")[0]
        assert "•" in "".join(plot_of(app)[:3])


@pytest.mark.parametrize("absurd", [math.nan, math.inf, -14.0, 3e38])
async def test_times_that_are_none_are_left_out(absurd: float) -> None:
    story = Story().tokens(*[(b" a", 0.5)] * 12)
    for _ in range(6):
        story.predict().pick(7, b" b", 0.5, total=absurd)
    story.tokens(*[(b" a", 0.5)] * 12).predict().stop()
    async with screen(story) as (pilot, app, _source):
        await pilot.press("shift+tab", "shift+tab")
        for _ in range(4):
            assert any("•" in line for line in plot_of(app))
            await pilot.press("M")
            await pilot.pause()


def timed(times: list[float]) -> Story:
    story = Story().predict().stop().command("run_to", None)
    for ms in times:
        story.predict([(5, b" a", 0.5)], ms=ms).pick(5, b" a", 0.5, total=ms)
    return story.predict().stop("pause")


async def test_a_pace_that_changed_is_not_said_to_be_growth() -> None:
    async with screen(timed([45.0] * 17 + [90.0] * 17)) as (_, app, _source):
        text = "\n".join(rows(app, "cost"))
        assert "ms, the scatter hides any growth" in text
        assert "growing" not in text


async def test_a_constant_that_no_step_was_near_is_not_named() -> None:
    async with screen(timed([1 + 0.5 * k for k in range(40)])) as (_, app, _source):
        text = "\n".join(rows(app, "cost"))
        assert "derived: growing +500" in text
        assert "constant" not in text


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (120, 40), (200, 50)])
async def test_each_sign_of_the_plot_is_in_the_legend(size: tuple[int, int]) -> None:
    story = running()
    story.predict(after_pause=True).pick(7, b" x", 0.5, total=15.0)
    story.predict().pick(7, b" x", 0.5, total=40_000.0).tokens(*[(b" word", 0.5)] * 12)
    for length in (12, 40):
        story.add(NaiveMeasured(t_ns=1, wall_ns=1, length=length, ms=20.0 + length, left=0))
    story.predict().stop_at(1, "id == 5")
    async with screen(story, size=size) as (pilot, app, _source):
        pane = app.main.query_one("#cost", Pane)
        while not pane.has_focus:
            await pilot.press("tab")
        if size != (120, 40):
            await pilot.press("z")
        await until(pilot, lambda: pane.size.height > 6)
        for mode in ("a step", "cached step", "so far", "second"):
            caption = rows(app, "cost")[0]
            assert mode in caption
            drawn = {sign for sign in "•×~▴◆↑↓" if any(sign in line for line in plot_of(app))}
            assert "•" in drawn
            if mode == "so far":
                drawn.discard("•")
            assert all(f"{sign} " in caption for sign in drawn), (drawn, caption)
            await pilot.press("M")


@pytest.mark.parametrize("slope", [0.0, 0.25])
async def test_a_forward_without_cache_is_compared_with_the_cached_step(slope: float) -> None:
    times = [10 + slope * k for k in range(60)]  # at 8 tokens and more
    story = timed(times)
    for length, ms in ((2, 9.0), (40, 60.0), (48, 160.0), (4000, 9000.0)):
        story.add(NaiveMeasured(t_ns=1, wall_ns=1, length=length, ms=ms, left=0))
    async with screen(story) as (_, app, _source):
        line = next(line for line in rows(app, "cost") if "derived:" in line)
        factor = 160 / (10 + slope * 40)
        assert f"derived: without cache {factor:.1f}x (once at 48 tokens), " in line
        assert ("growing +250" if slope else "mean 10.0 ms") in line


@pytest.mark.parametrize("columns", range(30, 110, 5))
async def test_what_is_derived_is_told_in_whole_entries(columns: int) -> None:
    story = timed([43.7] * 40)
    story.add(NaiveMeasured(t_ns=1, wall_ns=1, length=40, ms=200.0, left=0))
    async with screen(story) as (_, app, _source):
        pane = app.main.query_one(CostPane)
        drawn = ["".join(part.text for part in line) for line in pane.draw(columns, 12)]
        told = [line for line in drawn if line.startswith("derived:")]
        assert told or columns < 35
        for line in told:
            assert len(line) <= columns
            ends = ("mean 43.7 ms", "the scatter hides any growth", "steps)")
            assert line.rstrip().endswith(ends)
            if columns >= 75:
                assert "without cache 4.6x (once at 40 tokens), mean 43.7 ms" in line


async def test_of_several_forwards_without_cache_the_mean_is_told() -> None:
    story = timed([10.0] * 60)
    for ms in (100.0, 200.0, 300.0):
        story.add(NaiveMeasured(t_ns=1, wall_ns=1, length=40, ms=ms, left=0))
    async with screen(story) as (_, app, _source):
        text = "\n".join(rows(app, "cost"))
        assert "without cache 20.0x (3 times at 40 tokens), mean 10.0 ms" in text


async def test_lengths_that_no_step_had_are_not_compared() -> None:
    story = timed([10.0] * 30)
    story.add(NaiveMeasured(t_ns=1, wall_ns=1, length=2, ms=9.0, left=0))
    async with screen(story) as (_, app, _source):
        assert "without cache" not in "\n".join(rows(app, "cost"))
