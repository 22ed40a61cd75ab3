"""COST PER STEP: what is drawn."""

from tests.tui.pilot import rows, screen
from tests.tui.story import Story
from tui.panes.base import Pane


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


async def test_cost_changes_what_it_draws() -> None:
    async with screen(running()) as (pilot, app, _source):
        assert "ms a step" in rows(app, "cost")[0]
        await pilot.press("shift+tab", "shift+tab", "M")
        assert "ms so far" in rows(app, "cost")[0]
        await pilot.press("M")
        assert "tokens a second" in rows(app, "cost")[0]
