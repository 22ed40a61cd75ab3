"""The loading of a model on standard error."""

import io
import sys

import pytest

from engine_daemon.cli.progress import LoadProgress, bar
from engine_daemon.protocol.state import EngineState, State
from tests.daemons import wait_for


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def state(word: str, stage: str = "", done: int = 0, total: int = 0) -> State:
    engine = EngineState(
        word="ready" if word == "ready" else "loading",
        model_name="m\x1b",
        stage=stage,
        done=done,
        total=total,
    )
    return State(engine=engine, sessions=[], viewers=[])


STORY = [
    state("loading", "import"),
    state("loading", "download", 10_000_000, 93_000_000),
    state("loading", "download", 93_000_000, 93_000_000),
    state("loading", "load"),
    state("ready"),
]


def test_a_line_for_each_stage_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    progress = LoadProgress()
    for one in STORY:
        progress.update(one)
    assert stderr.getvalue().splitlines() == [
        "m␛: importing the engine",
        "m␛: downloading the model",
        "m␛: loading the weights",
    ]


def test_a_bar_that_goes_away_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    progress = LoadProgress()
    for one in STORY:
        progress.update(one)
    written = stderr.getvalue()
    assert "10/93 MB" in written
    assert written.endswith("\r\x1b[K")
    assert "\x1b:" not in written


def test_the_time_goes_on_while_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    progress = LoadProgress()
    progress.update(state("loading", "import"))
    wait_for(lambda: stderr.getvalue().count("importing the engine") >= 3)
    progress.close()
    times = [line.split(" s ")[0] for line in stderr.getvalue().split("\x1b[K")[1:-1]]
    assert len(set(times)) >= 2
    assert stderr.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize(("share", "full"), [(0.0, 0), (0.5, 12), (1.0, 24)])
def test_bar(share: float, full: int) -> None:
    drawn = bar(share)
    assert len(drawn) == 24
    assert drawn.count("█") == full
