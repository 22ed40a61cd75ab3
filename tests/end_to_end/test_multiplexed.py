"""Three windows of tmux on one session: hand-over, pause and detach by keys."""

import shutil
import subprocess

import pytest

from tests.daemons import wait_for
from tests.end_to_end.command import COMMAND, Place
from tests.lacking import lacking

pytestmark = pytest.mark.terminal

ENGINE = ("--engine", "scripted", "--model", "scripted:rate=50,context=100000")


class Tmux:
    """A server of its own; a window for each screen, its picture as tmux has it."""

    def __init__(self, place: Place) -> None:
        program = shutil.which("tmux")
        if program is None:
            lacking("tmux")
        self._words = [program, "-f", "/dev/null", "-S", str(place.root / "tmux")]
        self._env = {**place.env, "SHELL": "/bin/sh"}
        self._place = place

    def __enter__(self) -> "Tmux":
        return self

    def __exit__(self, *error: object) -> None:
        self._run("kill-server", check=False)

    def _run(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            [*self._words, *words],
            env=self._env,
            cwd=self._place.cwd,
            capture_output=True,
            text=True,
            check=check,
        )
        return done.stdout

    def screen(self, name: str, columns: int, lines: int, *words: str) -> None:
        """The command in a session of tmux of this name and size."""
        size = ("-x", str(columns), "-y", str(lines))
        self._run("new-session", "-d", "-s", name, *size, "--", str(COMMAND), *words)

    def press(self, name: str, key: str) -> None:
        """A key, named as tmux does."""
        self._run("send-keys", "-t", name, key)

    def until(self, name: str, *wanted: str) -> None:
        """Wait until all of this is in its picture."""
        wait_for(lambda: all(part in self.picture(name) for part in wanted))

    def picture(self, name: str) -> str:
        """What its window shows."""
        return self._run("capture-pane", "-p", "-t", name)

    def names(self) -> list[str]:
        """The windows that are left."""
        return sorted(self._run("list-sessions", "-F", "#S", check=False).split())


def test_hand_over_pause_and_detach_in_tmux(place: Place) -> None:
    with Tmux(place) as tmux:
        tmux.screen("ann", 120, 40, *ENGINE, "--as", "ann", "Hello pods are")
        tmux.until("ann", "step 0 pending")
        tmux.screen("bob", 80, 24, "attach", "--as", "bob")
        tmux.screen("eve", 120, 40, "attach", "--as", "eve", "--observe")
        tmux.until("ann", "lease you · 3 viewers")
        tmux.until("bob", "step 0 pending", "lease ann")
        tmux.until("eve", "step 0 pending", "OBSERVING")

        tmux.press("bob", "L")
        tmux.until("bob", "take the lease from ann?")
        tmux.press("bob", "y")
        tmux.until("bob", "lease you")
        tmux.until("ann", "bob took the lease")
        tmux.press("ann", "s")
        tmux.until("ann", "lease held by bob")
        assert place.status()["sessions"][0]["place"]["step"] == 0
        tmux.press("bob", "s")
        for name in ("ann", "bob", "eve"):
            tmux.until(name, "step 1 pending")

        tmux.press("bob", "Space")
        tmux.until("eve", "LIVE")
        tmux.press("eve", "Space")
        tmux.until("eve", "only observes")
        tmux.until("ann", "LIVE")
        tmux.press("ann", "Space")  # not hers: a pause is everybody's
        for name in ("ann", "bob", "eve"):
            tmux.until(name, "PAUSED")

        tmux.press("bob", "q")
        wait_for(lambda: tmux.names() == ["ann", "eve"])
        wait_for(lambda: place.status()["sessions"][0]["holder"] is None)
        step = place.status()["sessions"][0]["place"]["step"]
        tmux.press("ann", "s")
        tmux.until("eve", f"step {step + 1} pending")
        assert place.status()["sessions"][0]["holder"] == "ann"
        tmux.press("eve", "q")
        wait_for(lambda: tmux.names() == ["ann"])
        tmux.press("ann", "q")
        wait_for(lambda: tmux.names() == [])
        wait_for(lambda: place.status()["viewers"] == [])
        assert place.status()["sessions"][0]["status"] == "paused"
