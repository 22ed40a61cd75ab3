"""An installation that changes under a running daemon: its workers are of another version then."""

import os
import shutil
import signal
from pathlib import Path

from engine_daemon import __version__
from tests.daemons import wait_for
from tests.end_to_end.command import SCRIPTED, Place
from tests.end_to_end.conftest import place as place

ROOT = Path(__file__).resolve().parents[2]


def test_a_worker_of_another_version_is_refused(place: Place) -> None:
    """The package is replaced while the daemon runs; its next worker is the new one's."""
    installed = place.root / "installed"
    for package in ("engine_daemon", "tui", "themes"):
        shutil.copytree(ROOT / package, installed / package)
    place.env["PYTHONPATH"] = str(installed)
    place.run("daemon", "start", *SCRIPTED)
    first = place.status()
    assert first["version"] == __version__
    init = installed / "engine_daemon" / "__init__.py"
    text = init.read_text("utf-8")
    init.write_text(text.replace(f'"{__version__}"', '"99.0.0"'), "utf-8")
    os.kill(first["engine"]["pid"], signal.SIGKILL)
    wait_for(lambda: place.status()["engine"]["word"] == "dead")
    engine = place.status()["engine"]
    assert engine["code"] == "version"
    assert engine["message"] == f"installed is 99.0.0, this daemon runs {__version__}"
    assert engine["hint"] == "Restart it: llm-inspect daemon restart"
    place.run("daemon", "restart")
    assert place.status()["engine"]["word"] == "ready"
    assert place.status()["version"] == "99.0.0"
