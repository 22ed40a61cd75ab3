"""What is pasted into a line: several lines, and more than there is room for."""

import pytest
from textual import events
from textual.widgets import Static

from engine_daemon.protocol.commands import Note
from tests.tui.pilot import screen, until
from tui.widgets.line import Line


@pytest.mark.parametrize("key", ["m", "b", "i"])
async def test_lines_that_are_pasted_are_all_there(key: str) -> None:
    async with screen() as (pilot, app, _):
        await pilot.press(key)
        await until(pilot, lambda: isinstance(app.focused, Line))
        line = app.focused
        assert isinstance(line, Line)
        await pilot.press("a", "b", "left")
        app.post_message(events.Paste("one\r\ntwo\nthree"))
        await until(pilot, lambda: line.value == "aone two threeb")
        await pilot.press("X")
        assert line.value == "aone two threeXb"


async def test_a_note_that_is_too_long_is_clipped_and_says_so() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.focused, Line))
        await pilot.press("a", "b")
        app.post_message(events.Paste("x" * 1000))
        words = app.screen.query_one("#complaint", Static)
        await until(pilot, lambda: "500 characters at most" in str(words.visual))
        await pilot.press("enter")
        await until(pilot, lambda: len(source.sent) == 1)
        note = source.sent[0][0]
        assert isinstance(note, Note)
        assert note.text == "ab" + "x" * 498
