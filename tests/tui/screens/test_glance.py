"""The screen of a terminal too small for panes."""

from engine_daemon.protocol.commands import (
    Force,
)
from tests.tui.pilot import keys, rows, screen, until


async def test_a_small_screen_has_keys_highlight_and_entropy() -> None:
    async with screen(size=(60, 15)) as (pilot, app, source):
        shown = rows(app, "glance")
        assert shown[0].startswith("paused · step 3")
        assert "5.04 bits" in shown[0]
        assert shown[2].startswith("▸␣scheduler")
        for key in ("? help", "q quit", "s step", "space pause/run"):
            assert key in keys(app)
        await pilot.press("enter")
        assert source.sent == []
        await pilot.press("down")
        assert rows(app, "glance")[3].startswith("▸␣control")
        await pilot.press("enter")
        await until(pilot, lambda: app.view.columns.place.step == 4)
        assert source.sent[0][0] == Force(id=6)
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert app.focused is app.main.query_one("#sequence")
