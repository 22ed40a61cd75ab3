"""PIPELINE says what the engine computes with."""

import msgspec

from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.events import EngineStarted, Predicted
from engine_daemon.protocol.values import Restored
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


async def test_how_the_model_was_loaded_is_told_where_there_is_room() -> None:
    story = Story()
    note = "a.gguf is a GGUF: its weights (Q8_0) are \x1b[31mdequantised to bf16"
    story.add(
        EngineStarted(
            **story._base(),
            engine=2,
            backend="hf",
            synthetic=False,
            weights_id="w",
            tokenizer_id="t",
            eos_ids=[2],
            model=MODEL,
            notes=[note],
        )
    )
    async with screen(story.predict().stop()) as (_, app, _source):
        pane = app.main.query_one("#pipeline", Pane)
        lines = list(map(text, pane.draw(100, 5)))
        assert lines[2] == note.replace("\x1b", "␛")
        assert all(len(text(line)) <= 40 for line in pane.draw(40, 5)[1:])


async def test_the_ranks_of_a_forward_and_their_skew() -> None:
    story = Story()
    alone = unpack_event(story.predict().log.pop())
    assert isinstance(alone, Predicted)
    story.add(msgspec.structs.replace(alone, ranks_ms=[13.0, 12.5, 13.3]))
    story.stop()
    async with screen(story) as (_, app, _source):
        pane = app.main.query_one("#pipeline", Pane)
        assert "3 ranks 12.5 ms to 13.3 ms, skew 0.80 ms" in text(pane.draw(140, 2)[1])


async def test_the_plain_engine_is_not_mentioned() -> None:
    async with screen() as (_, app, _source):
        pane = app.main.query_one("#pipeline", Pane)
        assert "engine" not in "".join(map(text, pane.draw(160, 2)))


async def test_a_kept_row_has_no_forward_and_a_second_reading_is_marked() -> None:
    story = Story().predict().pick(5, b" a", 0.5)
    for method, processed, ms in (("row", 0, 0.0), ("prefill", 10, 80.0), ("crop", 1, 13.0)):
        alone = unpack_event(story.predict().log.pop())
        assert isinstance(alone, Predicted)
        back = Restored(method=method, replayed=processed, ms=ms)
        story.add(msgspec.structs.replace(alone, processed=processed, forward_ms=ms, restored=back))
        story.pick(5, b" a", 0.5, total=ms + 0.6)
    async with screen(story.predict().stop(), size=(140, 50)) as (_, app, _source):
        times = [
            line.split()[-3] for line in rows(app, "tokens")[-5:] if " a" in line or "␣a" in line
        ]
        assert times == ["14.0", "°0.6", "↻80.6", "13.6"]
        pane = app.main.query_one("#pipeline", Pane)
        for step, forward, total in (
            (1, "forward – row kept", "total °0.60 ms"),
            (2, "forward ↻80.0 ms", "total ↻80.6 ms"),
            (3, "forward 13.0 ms", "total 13.6 ms"),
        ):
            app.main._look(step)
            assert forward in text(pane.draw(140, 1)[0])
            assert total in text(pane.draw(140, 1)[0])
