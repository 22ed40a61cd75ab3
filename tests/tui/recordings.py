"""Drives the screen of a replay on a recording that lies on disk."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from engine_daemon.recording.columns import Columns
from engine_daemon.recording.format import frame
from engine_daemon.recording.reader import Recording
from tests.tui.pilot import Screen, until
from tests.tui.story import Story
from tui.recorded import RecordedSource
from tui.replay import ReplayApp


def write(path: Path, log: list[bytes], start: int = 0) -> None:
    """Append the events of a log from `start` on, as frames."""
    with path.open("ab") as file:
        for seq, payload in enumerate(log[start:], start):
            file.write(frame(seq, payload))


def replay_app(path: Path, theme: str | None = None) -> ReplayApp:
    """The application on this file."""
    columns = Columns()
    return ReplayApp(RecordedSource(Recording.open(path, columns), columns), theme=theme)


@asynccontextmanager
async def replay(
    path: Path, story: Story | None = None, *, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[Screen, ReplayApp]]:
    """The app on a file, with the story written into it before."""
    if story is not None:
        write(path, story.log)
    app = replay_app(path)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: app.view.session is not None)
        await pilot.pause()
        yield pilot, app
