"""The script for the other machine's `sh`, run by a real one, and what is made of its answers."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from engine_daemon.errors import InspectError
from engine_daemon.remote.address import Remote
from engine_daemon.remote.asking import Asked, heard, script, socket_of

MARK = "llm-inspect-0123"
FAR = Remote("box", "me", 2222, "big")


def ran(text: str, home: Path, path: str = "/usr/bin:/bin") -> Asked:
    """What the script says in this home; its input ends behind it, so it ends, too."""
    shell = shutil.which("sh")
    assert shell is not None
    done = subprocess.run(
        [shell, "-s"],
        input=text,
        capture_output=True,
        text=True,
        env={"HOME": str(home), "PATH": path, "SHELL": "/bin/sh"},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done
    return heard(done.stdout.splitlines(), MARK)


def command(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", "utf-8")
    path.chmod(0o755)
    return path


def test_it_is_found_on_the_path_with_its_words(tmp_path: Path) -> None:
    command(tmp_path / "bin" / "llm-inspect", 'echo "$@"; echo oh >&2; exit 7')
    asked = ran(script("-big", MARK), tmp_path, f"{tmp_path}/bin:/usr/bin:/bin")
    assert asked == Asked("ended", 7, ["daemon status --json --name=-big", "oh"])


def test_it_is_found_in_the_home_of_installers(tmp_path: Path) -> None:
    command(tmp_path / ".local" / "bin" / "llm-inspect", "echo here")
    assert ran(script("big", MARK), tmp_path) == Asked("ended", 0, ["here"])


def test_it_is_found_where_a_login_shell_finds_it(tmp_path: Path) -> None:
    command(tmp_path / "venv" / "llm-inspect", "echo here")
    (tmp_path / ".profile").write_text('echo noise\nPATH="$HOME/venv:$PATH"\n', "utf-8")
    assert ran(script("big", MARK), tmp_path) == Asked("ended", 0, ["here"])


def test_it_is_nowhere(tmp_path: Path) -> None:
    assert ran(script("big", MARK), tmp_path) == Asked("none", None, [])


@pytest.mark.parametrize(
    "word", ["$(touch x)", "`touch x`", "a b", "'", '"; touch x; "', "-x", "!!"]
)
def test_words_stay_what_they_are(tmp_path: Path, word: str) -> None:
    called = command(tmp_path / "an odd place" / "call", 'printf "%s\\n" "$1"')
    words = (f"~/{called.relative_to(tmp_path)}", word)
    assert ran(script("big", MARK, words), tmp_path) == Asked("ended", 0, [word])
    assert not (tmp_path / "x").exists()


def test_what_a_shell_says_at_login_is_passed_over() -> None:
    said = ["Welcome!", '{"socket": "/evil"}', f"{MARK} hello", f"{MARK} asked", "", "{}"]
    assert heard(said, MARK) == Asked("asked", None, ["{}"])
    assert heard([*said, f"{MARK} ended 0"], MARK) == Asked("ended", 0, ["{}"])


def told(code: int, *lines: str) -> Asked:
    return Asked("ended", code, list(lines))


def test_the_socket() -> None:
    status = json.dumps({"socket": "/tmp/llmi-1/ab/v.sock", "version": "1"})
    assert socket_of(told(0, "warning: x", status), FAR) == "/tmp/llmi-1/ab/v.sock"


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        (Asked("none", None, []), "no llm-inspect on box", '[remote."box"] command'),
        (told(127, "sh: not found"), "no llm-inspect on box", "Install it there"),
        (
            told(4, "llm-inspect: no daemon named big is running", "Start one: x"),
            "no daemon named big is running on box",
            "ssh -p 2222 me@box llm-inspect daemon start --name big",
        ),
        (told(0, '{"version": "0.0.1"}'), "llm-inspect 0.0.1 on box is too old", "Install"),
        (told(2, "llm-inspect: unknown option --json"), "too old", "Install"),
        (told(0, '{"socket": "/tmp/a b"}'), "too old", "Install"),
        (told(0, '{"socket": "/tmp/x:/etc/y"}'), "too old", "Install"),
        (told(0, "[]"), "too old", "Install"),
        (told(0, '{"a":' + "[" * 200_000), "too old", "Install"),
        (told(4, "llm-inspect: it is stuck"), "does not answer: it is stuck", "doctor"),
        (told(1), "does not answer: exit 1", "doctor"),
    ],
)
def test_what_stands_in_the_way(asked: Asked, message: str, hint: str) -> None:
    with pytest.raises(InspectError) as raised:
        socket_of(asked, FAR)
    assert message in raised.value.message
    assert hint in raised.value.hint
    assert raised.value.exit_code == 4
