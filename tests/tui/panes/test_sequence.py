"""SEQUENCE on a very long prompt: laid out between two keys, without a picture of each part."""

from collections.abc import Sequence

import pytest

from tests.tui.pilot import rows, screen, until
from tests.tui.story import Story
from tui.panes import sequence
from tui.panes.sequence import SequencePane

TOKENS = 40_000


async def test_a_long_prompt_is_laid_out_without_a_picture_of_each_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = 0
    draw = SequencePane.draw

    def counted(pane: SequencePane, columns: int, height: int) -> Sequence[object]:
        nonlocal drawn
        drawn += 1
        return draw(pane, columns, height)

    prompt = [(token % 1000, b" w%d" % token) for token in range(TOKENS)]
    async with screen(Story(prompt).predict().stop()) as (pilot, app, _):
        pane = app.main.query_one("#sequence", SequencePane)
        await until(pilot, lambda: pane._flow is not None and pane._flow.count == TOKENS)
        before = rows(app, "sequence")
        assert f"w{TOKENS - 1}" in "".join(before)
        assert pane._flow is not None
        pane._flow.clear()
        monkeypatch.setattr(SequencePane, "draw", counted)
        monkeypatch.setattr(sequence, "_REDRAWN_S", 3600.0)  # however slow this machine is
        pane.refresh_from()
        await until(pilot, lambda: pane._flow is not None and pane._flow.count == TOKENS)
        assert drawn <= 4
        assert [pane.render_line(y).text for y in range(len(before))] == before
