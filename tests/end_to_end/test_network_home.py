"""A home on the network, where sockets fail and locks do not hold: none of ours is there."""

import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_daemon.paths import short_hash
from tests.doctor.test_doctor import found, look
from tests.end_to_end.command import SCRIPTED, Place
from tests.hub.holding import INJECTED

pytestmark = pytest.mark.xdist_group("usual folder")

RUNTIME = Path(f"/tmp/llmi-{os.getuid()}")


@pytest.fixture
def home(place: Place) -> Path:
    """Everything that can point into it does. Its path is too long for a socket, so that one there
    fails here, too; the mount table says nfs4."""
    home = place.root / ("people-" * 20)
    home.mkdir()
    for variable in ("LLM_INSPECT_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        place.env.pop(variable)
    for variable, folder in (("XDG_RUNTIME_DIR", "run"), ("TMPDIR", "tmp"), ("HOME", "")):
        (home / folder).mkdir(exist_ok=True)
        place.env[variable] = str(home / folder)
    known = place.env.get("PYTHONPATH", "")
    place.env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(INJECTED), known]))
    place.env["LLM_INSPECT_TEST_HOME_ON"] = "nfs4"
    return home


@pytest.fixture
def name(place: Place, home: Path) -> Iterator[str]:
    """Of a daemon that nobody else has: its folder is among those of the real user."""
    made = f"test-{secrets.token_hex(4)}"
    yield made
    place.run("daemon", "stop", "--name", made, code=None)
    shutil.rmtree(RUNTIME / short_hash(made), ignore_errors=True)


@pytest.mark.pitfall("P13")
def test_sockets_and_locks_are_local_where_the_home_is_not(
    place: Place, home: Path, name: str
) -> None:
    with socket.socket(socket.AF_UNIX) as one, pytest.raises(OSError):
        one.bind(str(home / "s.sock"))
    done = place.run("run", "--json", "--name", name, *SCRIPTED, "--steps", "3", "Hello")
    assert done.lines[-1]["event"] == "done"
    (status,) = place.json("daemon", "status", "--name", name, "--json")
    assert status["engine"]["word"] == "ready"

    runtime = RUNTIME / short_hash(name)
    there = {path.name for path in runtime.iterdir()}
    assert {"v.sock", "e.sock", "lock", "conn.json"} <= there
    kept = [path for path in home.rglob("*") if not path.is_dir()]
    assert [path for path in kept if path.is_socket() or path.name == "lock"] == []
    assert [path.suffix for path in kept].count(".lir") == 1  # recordings are the user's

    rows = look(place, 0)
    found(rows, "home", "warn", "lies on nfs4")
    found(rows, "state", "warn", "on nfs4: each step waits for the network")
    assert [row for row in rows if row["area"] == "runtime" and row["word"] != "ok"] == []


@pytest.mark.pitfall("P13")
@pytest.mark.usefixtures("home")
def test_who_wants_the_sockets_there_is_told_by_doctor(place: Place) -> None:
    short = place.root / "short"
    short.mkdir()
    place.env["HOME"], place.env["LLM_INSPECT_RUNTIME_DIR"] = str(short), str(short / "run")
    rows = look(place, 4)
    found(rows, "runtime", "fail", "lies on nfs4: sockets and locks need a local disk")
