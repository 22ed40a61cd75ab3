"""Standard streams that are closed, full, or not text."""

import json
import os
import subprocess
from collections.abc import Sequence

import pytest

from tests.daemons import PATIENCE_S
from tests.end_to_end.command import COMMAND, SCRIPTED, Place


def shell(place: Place, redirect: str, *words: str) -> tuple[int, str, str]:
    """Run the command with a redirection of the shell's: code, output, errors."""
    done = subprocess.run(
        ["sh", "-c", f'"$0" "$@" {redirect}', COMMAND, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=place.env,
        cwd=place.cwd,
        timeout=PATIENCE_S,
        check=False,
    )
    errors = done.stderr.decode()
    assert "bug" not in errors
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors
    return done.returncode, done.stdout.decode(), errors


def test_closed_and_full_streams(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    full: Sequence[tuple[str, ...]] = [("--help",), ("daemon", "status"), ("sessions",)]
    for words in full:
        code, _, errors = shell(place, ">/dev/full", *words)
        assert (code, "No space" in errors) == (4, True), words
        assert shell(place, ">&-", *words)[0] == 0
    code, _, errors = shell(place, ">/dev/full", "run", "--steps", "3", "Hi")
    assert (code, "No space" in errors) == (4, True)
    code, _, errors = shell(place, "<&-", "run", "-")
    assert (code, "standard input is empty" in errors) == (2, True)


def test_nobody_hears_the_errors(place: Place) -> None:
    for redirect in ("2>&-", "2>/dev/full"):
        code, out, _ = shell(place, redirect, "run", *SCRIPTED, "--steps", "3", "Hi")
        assert (code, out != "") == (0, True)
        assert shell(place, redirect, "run", "--bogus")[0] == 2
        assert shell(place, redirect, "step", "nosuch")[0] == 2
        place.run("daemon", "stop")
        assert shell(place, redirect, "step", "nosuch")[0] == 4


def test_a_run_without_output_stands_still(place: Place) -> None:
    slow = ("--engine", "scripted", "--model", "scripted:rate=40")
    code, _, errors = shell(place, ">&-", "run", *slow, "--json", "Hello")
    assert (code, "attach --session" in errors) == (0, True)
    (session,) = place.status()["sessions"]
    assert session["status"] == "paused"


@pytest.mark.parametrize("words", [("pause", "K", "--as"), ("force", "K", "--text")])
def test_words_that_are_not_text(place: Place, words: tuple[str, ...]) -> None:
    done = place.run(*words, os.fsdecode(b"a\xff"), code=2)
    assert "not UTF-8" in done.err


def test_json_says_it_too(place: Place) -> None:
    (place.root / "file").write_bytes(b"")
    place.env["XDG_STATE_HOME"] = str(place.root / "file")
    code, out, errors = shell(place, "", "run", *SCRIPTED, "--json", "Hi")
    assert (code, json.loads(out)["code"]) == (4, "io")
    assert "cannot write" in errors
    assert "cannot read" in place.run("daemon", "logs", code=4).err
