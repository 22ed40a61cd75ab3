"""The far machine of a test, and what may be left of a viewer here and there."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import wait_for
from tests.end_to_end.command import Place
from tests.end_to_end.sshd import Box, ours

ENGINE = ("--engine", "scripted", "--model", "scripted:rate=100,context=100000")


@pytest.fixture
def box(place: Place) -> Iterator[Box]:
    """Another machine, on which nothing runs yet."""
    with Box(place) as made:
        yield made


def paused(box: Box, *words: str) -> str:
    """A session over there that stands at step 2; its id."""
    box.run("daemon", "start", *ENGINE, *words)
    box.run("run", *words, "--until", "step=2", "--keep", "Hello far")
    # Who ran it lets go of the lease as it leaves: a key before that is refused.
    wait_for(lambda: status(box, *words)["sessions"][0]["holder"] is None)
    (session,) = status(box, *words)["sessions"]
    assert (session["status"], session["place"]["step"]) == ("paused", 2)
    return str(session["session"])


def status(box: Box, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(box.run("daemon", "status", "--json", *words))
    return found


def step(box: Box) -> int:
    return int(status(box)["sessions"][0]["place"]["step"])


def folders(place: Place) -> list[Path]:
    """What tunnels have in the runtime directory."""
    return list((place.root / "run").glob("s-*"))


def nothing_left(place: Place, box: Box) -> None:
    """No process here or there, no file."""
    wait_for(lambda: ours(place) == [])
    wait_for(lambda: box.logins() == [])
    assert folders(place) == []


def kill(processes: list[Any]) -> None:
    assert processes
    for process in processes:
        process.kill()


@contextmanager
def near(place: Place) -> Iterator[None]:
    """This process is at the near place."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(place.env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
