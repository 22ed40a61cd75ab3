"""Daemons that leave while somebody comes, and restarts that fail."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine_daemon.config import DaemonOptions
from engine_daemon.lookup import is_running
from engine_daemon.paths import paths_for
from engine_daemon.protocol.worker import EngineOptions
from tests.daemons import wait_for
from tests.end_to_end.command import SCRIPTED, Finished, Place
from tests.worker.checkpoints import save_tiny


def model_of(place: Place) -> str:
    """As the daemon that runs was started."""
    assert place.status()["engine"]["word"] in ("ready", "busy")
    (path,) = (place.root / "state").rglob("options.json")
    return str(json.loads(path.read_text())["engine"]["model"])


def running(place: Place, monkeypatch: pytest.MonkeyPatch) -> bool:
    for name in ("LLM_INSPECT_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, place.env[name])
    return is_running(paths_for("default"))


def test_a_run_that_meets_a_daemon_about_to_leave_starts_another(place: Place) -> None:
    """Each daemon leaves with its only viewer, and the next command comes at that very moment."""
    words = ("run", *SCRIPTED, "--idle-exit", "0", "--steps", "3", "--json", "Hello")
    for _ in range(4):
        lines = place.run(*words).lines
        assert lines[-1]["event"] == "done"

    def one(_: int) -> Finished:
        return place.run(*words)

    with ThreadPoolExecutor(3) as pool:
        for done in pool.map(one, range(6)):
            assert done.lines[-1]["event"] == "done"


def test_open_and_the_screen_do_so_too(place: Place) -> None:
    run = ("run", *SCRIPTED, "--idle-exit", "0", "--steps", "3", "--json")
    session = place.run(*run, "Hello").lines[-1]["session"]
    # The daemon of that run is leaving, or has just left.
    assert session in place.run("open", session, *SCRIPTED).out.decode()
    # Either that one was still there, and leaves now, or another was started, which stays.
    place.run("daemon", "stop", code=None)
    place.run(*run, "Hello again")
    with place.terminal(*SCRIPTED, "--idle-exit", "0", "Once more") as screen:
        screen.until("PAUSED")
        screen.press("q")
        screen.finish()


def started(place: Place) -> str:
    """A daemon with options that nobody would guess; its model string."""
    model = "scripted:rate=0,seed=7"
    place.run("daemon", "start", "--engine", "scripted", "--model", model)
    return model


def test_a_restart_that_names_nobody_to_share_with_stops_nothing(place: Place) -> None:
    started(place)
    pid = place.status()["pid"]
    for option in ("--share", "--share-control"):
        for verb in ("restart", "start"):
            refused = place.run("daemon", verb, option, "no-such-account", code=2)
            assert f"{option}: there is no user 'no-such-account'" in refused.err
    assert place.status()["pid"] == pid
    other = place.run("daemon", "start", "--share", "root", code=4)
    assert "runs with share unset; asked for was --share root" in other.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--tp", "3"), "the scripted engine runs on one rank only"),
        (("--engine", "hf", "--model", "nosuchmodel"), "no model named nosuchmodel is here"),
        (("--engine", "hf", "--model", "/nowhere/at/all"), "there is no folder /nowhere/at/all"),
        (("--model", "scripted:no_such=1"), "the scripted engine has no key 'no_such'"),
        (("--model", "other"), "the scripted engine has no model 'other'"),
        (("--engine", "hf", "--model", "nobody/none", "--device", "cuda:99"), "CUDA"),
    ],
)
def test_what_can_never_load_stops_nothing(place: Place, words: tuple[str, ...], why: str) -> None:
    model = started(place)
    pid = place.status()["pid"]
    refused = place.run("daemon", "restart", *words, "--yes", code=3)
    assert why.lower() in refused.err.lower()
    assert (place.status()["pid"], model_of(place)) == (pid, model)
    place.run("daemon", "restart", "--yes")
    assert model_of(place) == model


def test_a_folder_that_is_no_model_stops_nothing(place: Place, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "tiny")
    (folder / "tokenizer.json").unlink()
    started(place)
    pid = place.status()["pid"]
    words = ("--engine", "hf", "--model", str(folder), "--device", "cpu", "--yes")
    assert "has no tokenizer.json" in place.run("daemon", "restart", *words, code=3).err
    assert place.status()["pid"] == pid


def test_another_engine_does_not_take_the_model_of_the_one_before(place: Place) -> None:
    """A daemon of a model folder, as its options tell; no model is loaded for this."""
    started(place)
    (path,) = (place.root / "state").rglob("options.json")
    kept = json.loads(path.read_text())
    kept["engine"].update(backend="hf", model="/models/mine", revision="main")
    path.write_text(json.dumps(kept))
    done = place.run("daemon", "restart", "--engine", "scripted", "--yes")
    assert "the model /models/mine was the hf engine's and is not kept" in done.err
    now = DaemonOptions.read(path).engine
    assert (now.backend, now.model, now.revision) == ("scripted", EngineOptions().model, None)
    assert place.status()["engine"]["word"] == "ready"


def test_ranks_that_do_not_divide_stop_nothing(place: Place, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "tiny")
    model = started(place)
    words = ("--engine", "hf", "--model", str(folder), "--tp", "3", "--device", "cpu")
    refused = place.run("daemon", "restart", *words, "--yes", code=3)
    assert "4 attention heads, 2 key/value heads do not divide by 3 ranks" in refused.err
    assert "Use --tp 1 or 2" in refused.err
    assert model_of(place) == model


@pytest.mark.parametrize("verb", ["start", "restart", "run"])
def test_a_restart_that_fails_keeps_the_options_of_before(place: Place, verb: str) -> None:
    model = started(place)
    failed = place.run("daemon", "restart", "--model", "scripted:load_fail=1", "--yes", code=3)
    assert f"daemon start goes back to --engine scripted --model {model}" in failed.err
    again = place.run("daemon", "restart", "--model", "scripted:no_such_key=1", code=3)
    assert f"goes back to --engine scripted --model {model}" in again.err
    words = ("run", "--steps", "2", "Hello") if verb == "run" else ("daemon", verb)
    done = place.run(*words)
    if verb != "restart":
        assert f"goes back to --engine scripted --model {model}" in done.err
    assert model_of(place) == model
    place.run("daemon", "restart", "--model", "scripted:rate=0,seed=8", "--yes")
    place.run("daemon", "restart", "--yes")
    assert model_of(place) == "scripted:rate=0,seed=8"


def test_a_restart_that_does_not_wait_may_fail_later(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = started(place)
    bad = "scripted:load_fail=1,load_ms=200"
    place.run("daemon", "restart", "--model", bad, "--no-wait", "--yes")
    wait_for(lambda: not running(place, monkeypatch))
    place.run("daemon", "start")
    assert model_of(place) == model
