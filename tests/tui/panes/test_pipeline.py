"""PIPELINE says what the engine computes with."""

import msgspec

from engine_daemon.protocol.events import EngineStarted
from tests.tui.pilot import rows, screen
from tests.tui.story import MODEL, Story
from tui.panes.base import Line, Pane


def text(line: Line) -> str:
    return "".join(part.text for part in line)


async def test_the_engine_path_is_shown_where_it_is_not_plain() -> None:
    story = Story()
    fast = msgspec.structs.replace(MODEL, engine_path="packed+joined")
    story.add(
        EngineStarted(
            **story._base(),
            engine=2,
            backend="hf",
            synthetic=False,
            weights_id="w",
            tokenizer_id="t",
            eos_ids=[2],
            model=fast,
        )
    )
    async with screen(story.predict().stop()) as (_, app, _source):
        assert "fast engine  probe" in rows(app, "pipeline")[0]
        pane = app.main.query_one("#pipeline", Pane)
        assert "engine packed+joined" in text(pane.draw(100, 2)[1])
        assert "fast engine" not in text(pane.draw(80, 2)[0])


async def test_the_plain_engine_is_not_mentioned() -> None:
    async with screen() as (_, app, _source):
        pane = app.main.query_one("#pipeline", Pane)
        assert "engine" not in "".join(map(text, pane.draw(160, 2)))
