"""A real terminal that is resized a hundred times a second: T1."""

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.command import SCRIPTED, Place
from tests.end_to_end.terminal import Terminal

Record = Callable[[str, object], None]
PERIOD_S = 0.01


@pytest.mark.terminal
@pytest.mark.fault("T1")
@pytest.mark.parametrize("seconds", [1, pytest.param(5, marks=pytest.mark.soak)])
def test_a_storm_of_sizes_ends_in_the_right_layout(
    seconds: int, place: Place, record_property: Record
) -> None:
    """Any size from 20×5 to 200×60; at last the first one again, and the first picture."""
    place.run("daemon", "start", *SCRIPTED)
    place.run("run", "--steps", "30", "--keep", "Hello there")
    late = place.cwd / "late"
    late.write_text("0")
    words = [sys.executable, "-m", "tests.faults.ticking_screen", str(late)]
    env = {**place.env, "PYTHONPATH": str(Path(__file__).parents[2])}
    with Terminal(words, env, place.cwd) as screen:
        screen.until(lambda picture: "COST PER STEP" in picture and "CACHE" in picture)
        before = _panes(_still(screen))
        late.write_text("0")
        rng, resizes = random.Random(1), 0
        start = time.monotonic()
        while time.monotonic() < start + seconds:
            screen.resize(rng.randint(20, 200), rng.randint(5, 60))
            resizes += 1
            time.sleep(max(0.0, start + resizes * PERIOD_S - time.monotonic()))
        screen.resize(120, 40)
        began = time.monotonic()
        screen.until(lambda picture: _panes(picture) == before)
        settled = time.monotonic() - began
        screen.press("s")
        screen.until("step 30 pending")
        screen.press("q")
        screen.finish()
    worst = float(late.read_text())
    record_property(
        "figure",
        f"{resizes} sizes in {seconds} s: the layout as before {settled:.2f} s later; "
        f"worst tick delay {worst * 1000:.0f} ms",
    )
    if seconds == 5:
        assert worst < 0.6


def _panes(picture: str) -> list[str]:
    """All but the keys in the last line: they are those of the pane with the focus, and a pane that
    had no room on the way gave it up."""
    return picture.splitlines()[:-1]


def _still(screen: Terminal) -> str:
    """The picture once it has not changed for a while."""
    picture, since = screen.text(), time.monotonic()
    while time.monotonic() - since < 1.0:
        time.sleep(0.05)
        if screen.text() != picture:
            picture, since = screen.text(), time.monotonic()
    return picture
