"""A click on what a token, a name or a note says fires nothing: T3."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.widgets import Static

from engine_daemon.errors import InspectError
from tests.end_to_end.command import Place
from tests.end_to_end.conftest import place as place
from tests.tui.hostile_screen import KEYS, Playing, daemon, pieces, story
from tests.tui.pilot import Screen, screen
from tests.tui.recordings import replay, write

MARKUP = "click="
FIRES = "@click"
"""What Textual keeps with a cell whose text it read as markup with an action."""
Record = Callable[[str, object], None]


class Clicker:
    """Presses keys, looks at each picture, and clicks on some."""

    def __init__(self, pilot: Screen, fired: list[str]) -> None:
        self.pictures = self.hostile = self.clicks = 0
        self._pilot, self._fired = pilot, fired

    async def play(self, keys: list[str], clicked: int) -> None:
        """Look at what each key brings; click on the markup of the first so many pictures."""
        for key in ["", *keys]:
            if key:
                await self._pilot.press(key)
                await self._pilot.pause()
            strips = self._pilot.app.screen._compositor.render_strips()
            found = [(strip.text, y) for y, strip in enumerate(strips) if MARKUP in strip.text]
            fires = [(text, meta) for text, meta in cells(self._pilot.app) if FIRES in meta]
            assert not fires, key
            self.pictures += 1
            self.hostile += bool(found)
            if self.hostile <= clicked:
                await self._click([(cell_len(text[: text.index(MARKUP)]), y) for text, y in found])

    async def _click(self, places: list[tuple[int, int]]) -> None:
        self._fired.clear()
        for at in places:
            await self._pilot.click(offset=at)
            self.clicks += 1
        await self._pilot.pause()
        assert self._fired == []


def cells(app: App[InspectError]) -> Iterator[tuple[str, dict[str, object]]]:
    """Everything on the screen, with what lies behind it."""
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            yield segment.text, {} if segment.style is None else segment.style.meta


@pytest.fixture
def fired(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The actions that ran; those of keys too."""
    ran: list[str] = []
    run = App.run_action

    async def noted(app: App[object], action: object, *others: object, **named: object) -> bool:
        ran.append(str(action))
        return await run(app, action, *others, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(App, "run_action", noted)
    return ran


@pytest.mark.fault("T3")
@pytest.mark.parametrize("scene", ["main", "dialogs", "people"])
async def test_a_click_on_a_hostile_row_fires_nothing(
    scene: str, fired: list[str], record_property: Record
) -> None:
    source = Playing(story("hostile"), daemon("hostile"))
    bad = "".join(piece.decode("latin-1") for piece in pieces("hostile"))
    source.refuse = InspectError(bad, bad)
    async with screen(source=source) as (pilot, app, _):
        clicker = Clicker(pilot, fired)
        await clicker.play(KEYS[scene], 3)
        assert app.is_running
    told(clicker, scene, record_property)


@pytest.mark.fault("T3")
async def test_a_click_on_a_hostile_recording_fires_nothing(
    fired: list[str], tmp_path: Path, record_property: Record
) -> None:
    async with replay(tmp_path / "a.lir", story("hostile")) as (pilot, app):
        clicker = Clicker(pilot, fired)
        await clicker.play(KEYS["replay"], 3)
        assert app.is_running
    told(clicker, "replay", record_property)


def told(clicker: Clicker, scene: str, record_property: Record) -> None:
    """The markup was there to be clicked on."""
    assert clicker.hostile > 0
    assert clicker.clicks > 0
    record_property(
        "figure",
        f"{scene}: {clicker.pictures} pictures, no cell with an action; {clicker.clicks} clicks",
    )


class Trusting(App[InspectError]):
    """What the tests must find: a text that is taken as markup."""

    def compose(self) -> ComposeResult:
        """One such."""
        yield Static("[@click=app.bell]click= here[/]")


async def test_the_tests_would_find_one(fired: list[str]) -> None:
    app = Trusting()
    async with app.run_test() as pilot:
        await pilot.pause()
        assert [text for text, meta in cells(app) if FIRES in meta] == ["click= here"]
        await pilot.click(offset=(3, 0))
        await pilot.pause()
    assert fired == ["app.bell"]


@pytest.mark.terminal
@pytest.mark.fault("T3")
def test_clicks_of_a_real_terminal_on_a_hostile_recording(place: Place) -> None:
    """Every row of two pictures, by the sequences that a mouse sends; `app.quit` would end it."""
    told = story("hostile")
    write(place.cwd / "a.lir", told.log)
    last = told.step
    with place.terminal("replay", "a.lir") as terminal:
        terminal.until(MARKUP)
        for key, wanted in (("G", MARKUP), ("'", "NOTES ─")):
            terminal.press(key)
            terminal.until(wanted)
            for row in range(1, 41):
                for column in (5, 40, 90):
                    at = f"{column};{row}"
                    terminal.press(f"\x1b[<0;{at}M", f"\x1b[<0;{at}m")
        terminal.until(lambda picture: "NOTES ─" not in picture)  # one was chosen
        for key, wanted in (("g", f"step 0 of {last}"), ("G", f"step {last} of {last}")):
            terminal.press(key)
            terminal.until(wanted)
        terminal.press("q")
        terminal.finish()
