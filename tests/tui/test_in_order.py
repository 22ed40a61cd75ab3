"""Keys and pasted texts that come together, and one that never comes back."""

import asyncio

import pytest
from textual import events
from textual.widget import Widget
from textual.widgets import Input

from tests.daemons import PATIENCE_S
from tests.tui.pilot import screen, until
from tui import in_order


class Deaf(Widget, can_focus=True):
    """Takes a key and is not done with it before it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = asyncio.Event()

    async def _on_key(self, event: events.Key) -> None:
        await self.let_go.wait()


def key(name: str) -> events.Key:
    return events.Key(name, name if len(name) == 1 else None)


async def test_text_bound_keys_and_pasted_text() -> None:
    async with screen() as (pilot, app, _):
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.focused, Input))
        line = app.focused
        assert isinstance(line, Input)
        given = [*map(key, "ax"), key("backspace"), events.Paste("bd"), key("left"), key("c")]
        for event in given:
            app.post_message(event)
        await until(pilot, lambda: line.value == "abcd")
        assert line.cursor_position == 3


async def test_whoever_keeps_a_key_holds_up_the_others_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_order, "PATIENCE_S", 0.05)
    async with screen() as (_, app, source):
        deaf = Deaf()
        await app.main.mount(deaf)
        app.set_focus(deaf)
        app.post_message(key("x"))
        while app._in_order._under_way is None:
            await asyncio.sleep(0.01)
        app.set_focus(None)
        app.post_message(key("s"))
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not source.sent:
                    await asyncio.sleep(0.01)
        finally:
            deaf.let_go.set()
