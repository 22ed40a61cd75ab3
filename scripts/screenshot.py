"""Make docs/screenshot.svg: the real screen on the real demo model, after some steps.

Needs the engine; starts a daemon of its own and stops it.
"""

import argparse
import asyncio
import os
import tempfile
from pathlib import Path

from engine_daemon.client import DaemonClient
from engine_daemon.config import DaemonOptions
from engine_daemon.launch import start_daemon, stop_daemon
from engine_daemon.paths import Paths, paths_for
from engine_daemon.protocol.commands import Open
from engine_daemon.protocol.values import PromptSpec, Sampler
from engine_daemon.protocol.worker import EngineOptions
from tui.app import InspectApp

PICTURE = Path(__file__).parent.parent / "docs" / "screenshot.svg"
PROMPT = b"Kubernetes pods are scheduled by the"
SAMPLER = Sampler(greedy=False, temperature=0.8, top_p=0.95, seed=7)
STEPS = 60


async def picture(paths: Paths) -> str:
    """The screen's SVG after `STEPS` sampled tokens."""
    opening = Open(prompt=PromptSpec(text=PROMPT), sampler=SAMPLER, run_to=STEPS)
    app = InspectApp(lambda: DaemonClient(paths, client="tui"), open_command=opening)
    async with app.run_test(size=(120, 40)) as pilot:
        while len(app.view.columns) < STEPS or app.view.columns.status != "paused":
            await pilot.pause(0.1)
        await pilot.pause(0.5)
        return app.export_screenshot(title="llm-inspect")


def main() -> None:
    """Start a daemon in directories of its own, take the picture, stop it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=PICTURE, help="the SVG (%(default)s)")
    out: Path = parser.parse_args().out
    with tempfile.TemporaryDirectory(prefix="li", dir="/tmp") as root:
        os.environ["LLM_INSPECT_RUNTIME_DIR"] = f"{root}/run"
        os.environ["XDG_STATE_HOME"] = f"{root}/state"
        paths = paths_for()
        engine = EngineOptions(cache_dir=str(paths.cache))
        start_daemon(paths, DaemonOptions(engine=engine))
        try:
            out.write_text(asyncio.run(picture(paths)), encoding="utf-8")
        finally:
            stop_daemon(paths)


if __name__ == "__main__":
    main()
