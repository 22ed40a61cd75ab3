"""COST PER STEP: how often it draws. A plot costs 10 ms, so that drawing it for each of a thousand
events a second would be all that a viewer does."""

import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import psutil
import pytest

from tests.tui.pilot import rows, screen, until
from tests.tui.source import FakeSource
from tests.tui.story import Story, state
from tui.panes import cost
from tui.panes.cost import CostPane
from tui.widgets import plot
from tui.widgets.plot import DOT, Series, plot_lines

LEAST_S = 0.25
"""Between two drawings at four a second."""


class Drawn(NamedTuple):
    at: float
    taken: int


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Drawn]:
    """When each plot was drawn, and how many steps were in it."""
    seen: list[Drawn] = []
    draw = CostPane.draw

    def noted(pane: CostPane, columns: int, rows: int) -> Sequence[object]:
        lines = draw(pane, columns, rows)
        seen.append(Drawn(pane._drawn_at, pane._taken))
        return lines

    monkeypatch.setattr(CostPane, "draw", noted)
    return seen


def running(steps: int = 30) -> Story:
    story = Story().predict().stop().command("run_to", None)
    return story.tokens(*[(b" word", 0.5)] * steps)


def more(source: FakeSource) -> int:
    """One step more; how many there are."""
    source.story.tokens((b" x", 0.5))
    source.flush()
    return source.story.step


def gaps(drawn: list[Drawn]) -> list[float]:
    return [after.at - before.at for before, after in pairwise(drawn)]


@pytest.mark.pitfall("P37")
async def test_a_stream_of_steps_is_drawn_four_times_a_second_and_to_its_end(
    drawn: list[Drawn],
) -> None:
    async with screen(running()) as (pilot, _app, source):
        await until(pilot, lambda: bool(drawn) and drawn[-1].taken == 30)
        del drawn[:-1]
        came = 0
        while len(drawn) < 5:
            came += 1
            more(source)
            await pilot.pause(0.01)
        last = more(source)
        await until(pilot, lambda: drawn[-1].taken == last)
        assert min(gaps(drawn)) >= LEAST_S
        assert came > 2 * len(drawn)


@pytest.mark.pitfall("P37")
async def test_a_drawing_that_was_put_off_is_not_made_once_more(drawn: list[Drawn]) -> None:
    """Events that come when its time has come, before its timer does, draw it."""
    async with screen(running()) as (pilot, app, source):
        pane = app.main.query_one(CostPane)
        await until(pilot, lambda: bool(drawn) and drawn[-1].taken == 30)
        pane._drawn_at = time.monotonic()
        more(source)
        await until(pilot, lambda: pane._late or drawn[-1].taken == 31)
        pane._drawn_at -= 1.0
        more(source)
        await until(pilot, lambda: drawn[-1].taken == 32)
        known = len(drawn)
        await until(pilot, lambda: not pane._late)
        assert len(drawn) == known


@pytest.mark.pitfall("P37")
async def test_a_long_history_is_taken_in_slices_that_are_not_all_drawn(
    drawn: list[Drawn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "_SLICE", 5)
    async with screen(running(100)) as (pilot, app, _source):
        await until(pilot, lambda: bool(drawn) and drawn[-1].taken == 100)
        first = next(n for n, one in enumerate(drawn) if one.taken)
        assert min(gaps(drawn[first:])) >= LEAST_S
        assert len(drawn) - first < 100 // 5
        assert app.main.query_one(CostPane)._sum > 0


@pytest.mark.pitfall("P37")
async def test_nothing_is_drawn_where_it_is_not_seen_or_nothing_came(drawn: list[Drawn]) -> None:
    async with screen(running()) as (pilot, app, source):
        pane = app.main.query_one(CostPane)
        await until(pilot, lambda: bool(drawn) and drawn[-1].taken == 30)

        known = len(drawn)
        source.set_state(state())
        await until(pilot, lambda: app.view.state is source.state)
        assert (len(drawn), pane._late) == (known, False)

        await pilot.press("z")  # SEQUENCE has the screen
        await until(pilot, lambda: not pane.size.height)
        known = len(drawn)
        for _ in range(5):
            count = more(source)
            await until(pilot, lambda n=count: len(app.view.columns) == n)  # type: ignore[misc]
        assert (len(drawn), pane._late) == (known, False)

        await pilot.press("z")
        await until(pilot, lambda: drawn[-1].taken == count)


@pytest.mark.pitfall("P37")
@pytest.mark.parametrize(
    "plots", [200, pytest.param(20_000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
def test_plots_leave_no_memory_behind(plots: int) -> None:
    process, points = psutil.Process(), [float(n) for n in range(200)]

    def draw(count: int) -> None:
        for number in range(count):
            ys = [(n * number) % 17 for n in points]
            assert plot_lines([Series(points, ys)], 100, 25, low=0.0, high=20.0)

    draw(50)
    before = process.memory_info().rss
    draw(plots)
    assert process.memory_info().rss - before < 16_000_000


async def test_what_draws_it_is_waited_for_by_no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """A screen opened amid a session: its captions at once, the plot as soon as it can be."""
    asked: list[Callable[[], object]] = []
    monkeypatch.setattr(plot, "_over", threading.Event())
    monkeypatch.setattr(cost, "load_beside", asked.append)
    async with screen(running()) as (pilot, app, _):
        await until(pilot, lambda: len(asked) == 1)
        assert not any(DOT in row for row in rows(app, "cost")[1:])
        assert "ms a step" in rows(app, "cost")[0]
        plot.load_beside(asked[0])
        pane = app.main.query_one("#cost", CostPane)
        await until(pilot, lambda: any(DOT in pane.render_line(y).text for y in range(2, 8)))
        assert len(asked) == 1
