"""`doctor`: each thing that may be wrong, made wrong."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine_daemon.installing import INSTALL_ENGINE
from tests.daemons import wait_for
from tests.end_to_end.command import COMMAND, SCRIPTED, Place, alive
from tests.end_to_end.conftest import place as place

Rows = list[dict[str, str]]
WHOLE = (str(COMMAND),)
WITHOUT_TORCH = (sys.executable, "-P", str(Path(__file__).with_name("without_torch.py")))


def look(
    place: Place,
    code: int | None = None,
    before: Sequence[str] = (),
    command: Sequence[str] = WITHOUT_TORCH,
) -> Rows:
    """Its rows; `before`: the words of a command that runs it."""
    done = subprocess.run(
        [*before, *command, "doctor", "--json"],
        env=place.env,
        cwd=place.cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    failing = any(row["word"] == "fail" for row in rows)
    assert rows, done
    assert "Traceback" not in done.stderr
    assert done.returncode == (4 if failing else 0) == (4 if code == 4 else done.returncode), done
    for row in rows:
        assert row["word"] in ("ok", "warn", "fail")
        assert bool(row["do"]) == (row["word"] != "ok"), row
    return rows


def found(rows: Rows, area: str, word: str, says: str) -> dict[str, str]:
    """The one row like this."""
    matching = [r for r in rows if (r["area"], r["word"]) == (area, word) and says in r["says"]]
    assert len(matching) == 1, (area, word, says, rows)
    return matching[0]


@pytest.fixture
def config(place: Place) -> Path:
    path = place.root / "config" / "llm-inspect" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


def test_nothing_is_wrong(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    rows = look(place, 0, command=WHOLE)
    assert [row for row in rows if row["word"] == "fail"] == []
    areas = {row["area"] for row in rows}
    assert areas >= {"python", "packages", "ssh", "config", "runtime", "state", "cache"}
    assert areas >= {"daemon default", "terminal", "TERM", "colours", "characters", "open files"}
    assert found(rows, "daemon default", "ok", "pid")["says"].endswith("engine ready, 0 sessions")
    place.run("run", *SCRIPTED, "--keep", "--steps", "0", "Hello")
    assert found(look(place, 0), "daemon default", "ok", "pid")["says"].endswith(", 1 session")
    found(rows, "packages", "ok", "textual 8.2.8")


def test_the_whole_command_looks_at_devices_besides(place: Place) -> None:
    """Of what the other tests leave out: one area, and nothing else."""
    from engine_daemon.cli.doctor import LOOKS
    from engine_daemon.doctor import devices
    from tests.doctor.without_torch import LOOKS as left

    assert set(LOOKS) - set(left) == {devices.look}
    seen = {"python", "packages", "config", "runtime", "state", "open files", "TERM"}
    assert seen <= {row["area"] for row in look(place, 0)}


def test_on_a_terminal_it_is_read_by_people(place: Place) -> None:
    place.env |= {"COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
    with place.terminal("doctor", columns=150, lines=50) as screen:
        picture = screen.finish()
    for words in ("ok    terminal", "ok    size              150×50", "16 million", "0 fail"):
        assert words in picture
    with place.terminal("doctor", columns=80, lines=60) as screen:
        assert "80×60: some panes are left out" in screen.finish()


@pytest.mark.fault("T4")
@pytest.mark.parametrize(
    ("variables", "area", "word", "says"),
    [
        ({"TERM": "dumb"}, "TERM", "warn", "TERM=dumb"),
        ({"TERM": ""}, "TERM", "warn", "TERM is not set"),
        ({"TERM": "no-such-terminal"}, "TERM", "warn", "not known on this machine"),
        ({"TERM": "dumb"}, "colours", "warn", "none"),
        ({"NO_COLOR": "1"}, "colours", "ok", "NO_COLOR"),
        ({"COLORTERM": "truecolor"}, "colours", "ok", "16 million"),
        ({"LC_ALL": "en_US.ISO-8859-1"}, "characters", "warn", "ISO-8859-1"),
        ({"LC_ALL": "en_US.UTF-8"}, "characters", "ok", "UTF-8"),
        ({}, "terminal", "warn", "no terminal"),
        ({"PATH": "/nowhere"}, "ssh", "warn", "none"),
    ],
)
def test_variables(
    place: Place, variables: dict[str, str], area: str, word: str, says: str
) -> None:
    for name in ("COLORTERM", "NO_COLOR"):
        place.env.pop(name, None)
    place.env |= variables
    found(look(place), area, word, says)


# Configuration ------------------------------------------------------------------------------------


def test_a_wrong_configuration(place: Place, config: Path) -> None:
    config.write_text("[paths]\nsate = '/x'\n[daemon.a]\ntp = 'x'\n", "utf-8")
    rows = look(place, 4)
    assert found(rows, "config", "fail", "unknown key 'sate'")["do"] == "Did you mean state?"
    found(rows, "config", "fail", "tp in [daemon.a] takes a whole number")
    config.write_text("x =", "utf-8")
    found(look(place, 4), "config", "fail", "cannot read")


def test_a_configuration_that_others_can_write(place: Place, config: Path) -> None:
    config.write_text("", "utf-8")
    config.chmod(0o666)
    assert "chmod go-w" in found(look(place, 0), "config", "warn", "by others")["do"]
    config.chmod(0o644)
    found(look(place, 0), "config", "ok", "config.toml")


# Folders ------------------------------------------------------------------------------------------


def test_a_runtime_directory_that_is_open_to_others(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    (folder,) = (path.parent for path in (place.root / "run").glob("*/conn.json"))
    folder.chmod(0o777)
    row = found(look(place, 4), "runtime", "fail", "is open to others (mode 777)")
    assert row["do"] == f"chmod 700 {folder}"


def test_a_runtime_directory_that_is_something_else(place: Place) -> None:
    (place.root / "run").rmdir()
    (place.root / "run").write_text("a file")
    found(look(place, 4), "runtime", "fail", "is not a directory")


def test_a_runtime_directory_that_is_not_there_yet(place: Place) -> None:
    (place.root / "run").rmdir()
    rows = [row for row in look(place, 0) if row["area"] == "runtime"]
    assert [row["says"].partition(": ")[2] for row in rows] == ["made when it is needed"] * 2


def test_a_runtime_directory_too_deep_for_a_socket(place: Place) -> None:
    place.env["LLM_INSPECT_RUNTIME_DIR"] = "/tmp/" + "d" * 100
    found(look(place, 4), "runtime", "fail", "too deep for a socket")


def test_a_state_directory_that_cannot_be_written(place: Place) -> None:
    (place.root / "state").write_text("a file")
    found(look(place, 4), "state", "fail", "cannot be written: no recordings and logs")


def in_namespace(script: str) -> list[str]:
    """A command in a mount namespace of its own, after this; skips where that is not allowed."""
    unshare = shutil.which("unshare")
    allowed = unshare and subprocess.run([unshare, "-m", "true"], check=False).returncode == 0
    if not allowed:
        pytest.skip("needs leave for a mount namespace")
    return [str(unshare), "-m", "sh", "-c", f'{script}\nexec "$@"', "sh"]


@pytest.mark.parametrize(("room", "word"), [("1m", "fail"), ("100m", "warn")])
def test_little_room(place: Place, room: str, word: str) -> None:
    (place.root / "state").mkdir()
    before = in_namespace(f"mount -t tmpfs -o size={room} none {place.root / 'state'}")
    found(look(place, before=before), "state", word, "room for recordings")


def test_a_private_tmp(place: Place) -> None:
    private = place.root / "systemd-private-0-x.service-1" / "tmp"
    private.mkdir(parents=True)
    run = place.root / "run"
    before = in_namespace(f"mount --bind {private} {run}")
    row = found(look(place, before=before), "runtime", "warn", "private tmp")
    assert "[paths] runtime" in row["do"]


def test_a_daemon_with_another_tmp(place: Place) -> None:
    """It runs, and its folder is not the one seen under the same name from here."""
    run = place.root / "run"
    before = in_namespace(f"mount -t tmpfs none {run}")
    words = [*before, str(COMMAND), "daemon", "start", *SCRIPTED]
    started = subprocess.run(words, env=place.env, capture_output=True, text=True, check=False)
    assert started.returncode == 0, started
    row = found(look(place, 0), "daemon", "warn", f"with a {run}")
    assert "kill" not in row["do"]  # it lives, and somebody uses it
    pid = int(row["says"].partition("pid ")[2].partition(",")[0])
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid))


def test_a_daemon_of_another_runtime_directory(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    pid, here = place.status()["pid"], place.env["LLM_INSPECT_RUNTIME_DIR"]
    place.env["LLM_INSPECT_RUNTIME_DIR"] = str(place.root / "other")
    row = found(look(place, 0), "daemon", "ok", f"pid {pid},")
    assert f"LLM_INSPECT_RUNTIME_DIR={here} reaches it" in row["says"]


# Daemons ------------------------------------------------------------------------------------------


def test_a_daemon_that_does_not_answer(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    pid = place.status()["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        row = found(look(place, 4), "daemon default", "fail", "is halted")
        assert f"kill -CONT {pid}" in row["do"]
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_daemon_that_was_killed(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    pid = place.status()["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid))
    found(look(place, 0), "daemon default", "ok", "not running")


def test_a_daemon_of_another_version(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    (connection,) = (place.root / "run").glob("*/conn.json")
    told = json.loads(connection.read_text())
    connection.write_text(json.dumps({**told, "version": "0.0.1"}))
    row = found(look(place, 0), "daemon default", "warn", "it is 0.0.1, this is ")
    assert row["do"] == "llm-inspect daemon restart"


def test_a_shared_daemon_behind_a_closed_folder(place: Place) -> None:
    run = place.root / "run"
    for folder in (place.root, run):
        folder.chmod(0o711)
    place.run("daemon", "start", *SCRIPTED, "--share", "nobody")
    found(look(place, 0), "daemon default", "ok", "shared with nobody")
    place.root.chmod(0o700)
    row = found(look(place, 4), "daemon default", "fail", f"{place.root} keeps them out")
    assert row["do"] == f"chmod o+x {place.root}"


# Limits and devices -------------------------------------------------------------------------------


def test_few_open_files(place: Place) -> None:
    before = ["sh", "-c", 'ulimit -n 200; exec "$@"', "sh"]
    found(look(place, 0, before), "open files", "warn", "at most 200")


def smi(place: Place, body: str) -> None:
    """A driver's tool that says this."""
    tool = place.root / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{body}\n")
    tool.chmod(0o755)
    place.env["PATH"] = f"{tool.parent}:{place.env['PATH']}"


def test_cards_as_the_driver_tells_of_them(place: Place) -> None:
    smi(place, "echo '0, NVIDIA H200, 143771, 143000'; echo '1, NVIDIA H200, 143771, 900'")
    rows = look(place, 0, command=WHOLE)
    found(rows, "gpu 0", "ok", "NVIDIA H200, 150 GB of 151 GB free")
    assert "who holds it" in found(rows, "gpu 1", "warn", "944 MB of 151 GB free")["do"]


def test_a_driver_that_is_not_loaded(place: Place) -> None:
    smi(place, "echo 'NVIDIA-SMI has failed because it could not talk to the driver' ; exit 9")
    found(look(place, 0, command=WHOLE), "nvidia-smi", "warn", "NVIDIA-SMI has failed")


@pytest.mark.engine
def test_a_torch_that_cannot_be_imported(place: Place) -> None:
    broken = place.root / "broken" / "torch"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('libcudart.so.12: no such file')\n")
    place.env["PYTHONPATH"] = f"{broken.parent}:{os.environ.get('PYTHONPATH', '')}"
    row = found(look(place, 4, command=WHOLE), "torch", "fail", "libcudart.so.12: no such file")
    assert INSTALL_ENGINE in row["do"]
    assert f"`{INSTALL_ENGINE}`" in (Path(__file__).parents[2] / "README.md").read_text("utf-8")


@pytest.mark.engine
def test_torch_as_it_is(place: Place) -> None:
    import torch

    rows = look(place, 0, command=WHOLE)
    if not torch.cuda.is_available():
        found(rows, "torch", "ok", f"{torch.__version__}: CPU only")
    else:
        found(rows, "cuda:0", "ok", torch.cuda.get_device_name(0))
