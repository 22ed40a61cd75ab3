"""The application on a recording: no daemon is asked for anything, none is started.

Knows how the parts are put together; what they do is theirs.
"""

from pathlib import Path

from engine_daemon.cli.recordings import say_missing
from engine_daemon.protocol.state import State
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.reader import Recording
from tui.app import InspectApp, prepare_terminal
from tui.recorded import RecordedSource, no_engine
from tui.screens.main import MainScreen
from tui.screens.replay import ReplayScreen, replay_of


class ReplayApp(InspectApp):
    """One replay."""

    def __init__(
        self, recorded: RecordedSource, *, theme: str | None = None, config: Path | None = None
    ) -> None:
        self._recorded = recorded
        super().__init__(lambda: recorded, theme=theme, config=config)

    def make_main(self, *, observe: bool) -> MainScreen:
        """The main screen of a replay."""
        reason = no_engine(self._recorded.recording.path)
        return ReplayScreen(self.view, self._recorded, replay_of(self._recorded, reason))

    async def begin(self, state: State) -> None:
        """The screen begins by itself: there is one session, and it is known."""


def run_replay(
    recording: Recording, columns: Columns, theme: str | None, config: Path | None
) -> int:
    """Show a recording that is folded into `columns` until the person leaves; the exit code."""
    app = ReplayApp(RecordedSource(recording, columns), theme=theme, config=config)
    prepare_terminal()
    error = app.run()
    if error is not None:
        raise error
    say_missing(recording)
    return app.return_code or 0
