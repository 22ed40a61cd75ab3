"""`python -m tests.faults.ticking_screen FILE`: the screen, and how late its loop ever was.

The app itself on the daemon of the environment; a task beside it sleeps 10 ms at a time and writes
its longest delay, in seconds, into FILE whenever it grows.
"""

import asyncio
import sys
import time
from pathlib import Path

import tui.app
from engine_daemon.client import DaemonClient
from engine_daemon.paths import paths_for
from tui.app import InspectApp

TICK_S = 0.01


class Ticking(InspectApp):
    """The app with that task."""

    CSS_PATH = str(Path(tui.app.__file__).with_name("app.tcss"))
    file = Path()

    def on_ready(self) -> None:
        """It stands: begin."""
        self.run_worker(self._tick())

    async def _tick(self) -> None:
        worst = 0.0
        while True:
            began = time.monotonic()
            await asyncio.sleep(TICK_S)
            late = time.monotonic() - began - TICK_S
            if late > worst and self.view.columns.next > 0:
                worst = late
                self.file.write_text(f"{worst}")


def main(file: Path) -> None:
    """Until `q`."""
    app = Ticking(lambda: DaemonClient(paths_for("default"), client="tui"))
    app.file = file
    app.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
