"""Questions that the tokens process does not answer in time, and what is said of each."""

import os
import subprocess
from collections.abc import Iterator

import psutil
import pytest

from engine_daemon.hub.encoding import Encoder
from engine_daemon.lookup import is_halted
from engine_daemon.protocol.values import PromptSpec
from engine_daemon.protocol.worker import Encoded, Resolved
from tests.daemons import wait_for

LATER = 1e12
"""Seconds on the monotonic clock: past every deadline."""


@pytest.fixture
def other() -> Iterator[psutil.Process]:
    """A process that does nothing."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield psutil.Process(process.pid)
        process.kill()


def asked(prompt: PromptSpec) -> tuple[Encoder, list[Encoded | Resolved]]:
    said: list[Encoded | Resolved] = []
    encoder = Encoder(lambda *_: True)
    encoder.encode(prompt, said.append)
    encoder.resolve(["token='x'"], [], said.append)
    return encoder, said


@pytest.mark.parametrize(
    ("template", "message", "hint"),
    [
        (False, "the tokenizer took too long and was stopped", "Try again"),
        (True, "the chat template took too long and was stopped", "Use --raw"),
    ],
)
def test_what_takes_too_long(template: bool, message: str, hint: str) -> None:
    """The hint fits what was asked for; the next question goes on."""
    encoder, said = asked(PromptSpec(text=b"a", template=template))
    assert encoder.overdue(LATER, os.getpid())
    (answer,) = said
    assert (answer.code, answer.message) == ("too_slow", message)
    assert answer.hint.startswith(hint)


def test_a_halted_process_is_named_and_not_ended(other: psutil.Process) -> None:
    encoder, said = asked(PromptSpec(text=b"a"))
    other.suspend()
    wait_for(lambda: is_halted(other.pid))
    assert not encoder.overdue(0.0, other.pid)  # it has time yet
    assert said == []
    assert not encoder.overdue(LATER, other.pid)
    assert [answer.code for answer in said] == ["engine", "engine"]
    assert {answer.hint for answer in said} == {
        f"kill -CONT {other.pid} lets it go on; then try again"
    }
    assert not encoder.overdue(LATER, other.pid)
