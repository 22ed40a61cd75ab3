"""Bad input: a clear error of one or two lines, the right exit code, never a traceback."""

import json
import os
import shutil
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from tests.daemons import wait_for
from tests.end_to_end.command import SCRIPTED, Place, alive


def complaint(text: str) -> list[str]:
    """The error's own lines, without what was said of progress."""
    lines = text.splitlines()
    (start,) = [i for i, line in enumerate(lines) if line.startswith("llm-inspect: ")]
    return lines[start:]


@pytest.mark.parametrize(
    ("words", "stdin", "code"),
    [
        (["rnu"], b"", 2),
        (["--frobnicate"], b"", 2),
        (["hello world"], b"", 2),  # no terminal
        (["attach"], b"", 2),  # no terminal
        (["run"], b"", 2),
        (["run", ""], b"", 2),
        (["run", "-"], b"", 2),
        (["run", "-"], b"a\xffb", 2),
        (["run", "-"], b"a" * 9_000_000, 2),
        (["run", "--prompt-file", "nowhere"], b"", 2),
        (["run", "--greedy", "--top-k", "4", "hi"], b"", 2),
        (["run", "--temperature", "nan", "hi"], b"", 2),
        (["run", "--steps", "many", "hi"], b"", 2),
        (["run", "--system", "x", "hi"], b"", 2),
        (["run", "--record", "no/where.lir", "hi"], b"", 2),
        (["run", "--engine", "vllm", "hi"], b"", 2),
        (["run", "--tp", "65", "hi"], b"", 2),
        (["run", "--device", "cuda:0,2,4", "--tp", "2", "hi"], b"", 2),
        (["run", "--name", "../x", "hi"], b"", 2),
        (["replay", "x.lir"], b"", 2),
        (["force", "K"], b"", 2),
        (["step", "K", "x"], b"", 2),
        (["step", "K", "99999999999999999999999"], b"", 2),
        (["pause", "K", "--as", "a" * 65], b"", 2),
        (["pause", "K", "--as", "a\x1bb"], b"", 2),
        (["-hello world"], b"", 2),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_wrong_usage_starts_nothing(
    place: Place, words: list[str], stdin: bytes, code: int
) -> None:
    done = place.run(*words, stdin=stdin, code=code)
    assert 1 <= len(complaint(done.err)) <= 2
    assert done.out == b""
    wait_for(lambda: not list(place.connections()))


def test_a_prompt_longer_than_the_context(place: Place) -> None:
    done = place.run("run", *SCRIPTED, "--max-context", "4", "--json", "Hello", code=2)
    assert done.lines[-1]["event"] == "error"
    assert len(complaint(done.err)) <= 2
    assert "attach" not in done.err
    assert place.status()["sessions"] == []


def test_debug_shows_where(place: Place) -> None:
    done = place.run("run", "--debug", "--name", "a b", "hi", code=2)
    assert "Traceback" in done.err


def test_nobody_reads_at_all(place: Place) -> None:
    """Help into a closed pipe."""
    run = place.start("--help")
    assert run.process.stdout is not None
    run.process.stdout.close()
    assert run.process.wait(timeout=30) == 0


@pytest.mark.engine
def test_models_that_cannot_be_had(place: Place) -> None:
    """Unknown, broken and forbidden checkpoints, without network and without cache."""
    place.env |= {
        "XDG_CACHE_HOME": str(place.root / "cache"),
        "HF_HUB_CACHE": str(place.root / "hub"),
        "HF_HUB_OFFLINE": "1",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "",
        "OMP_NUM_THREADS": "1",
    }
    broken, pickled = place.root / "broken", place.root / "pickled"
    for folder in (broken, pickled):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": "llama"}), "utf-8")
        (folder / "tokenizer.json").write_text("{}", "utf-8")
    (broken / "model.safetensors").write_bytes(b"\x00" * 100)
    with zipfile.ZipFile(pickled / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", b"cos\nsystem\n(S'touch pwned'\ntR.")
    for model in ("no-such-model", "nobody/nothing", str(broken), str(pickled), "/not/there"):
        done = place.run("run", "--model", model, "--json", "hi", code=3)
        assert [line["event"] for line in done.lines] == ["error"], model
        assert len(complaint(done.err)) <= 2, done.err
        wait_for(lambda: not list(place.connections()))
    assert not Path(place.cwd / "pwned").exists()


@pytest.mark.parametrize("where", ["run", "run/37a8eec1"])
def test_a_file_where_the_folder_of_sockets_should_be(place: Place, where: str) -> None:
    if where == "run":
        (place.root / "run").rmdir()
    (place.root / where).write_bytes(b"")
    done = place.run("daemon", "start", *SCRIPTED, code=4)
    assert "irectory" in complaint(done.err)[0]
    assert "LLM_INSPECT_RUNTIME_DIR" in complaint(done.err)[1]


def test_files_that_would_be_waited_for(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    pid = place.status()["pid"]
    connection = place.root / "run" / "37a8eec1" / "conn.json"
    for make in (lambda: connection.write_bytes(b"{"), lambda: os.mkfifo(connection)):
        connection.unlink()
        make()
        assert "cannot be read" in place.run("daemon", "status", code=4).err
    place.run("daemon", "stop")
    assert not alive(pid)
    config = place.root / "config" / "llm-inspect"
    config.mkdir(parents=True)
    os.mkfifo(config / "config.toml")
    assert "no regular file" in place.run("daemon", "start", code=2).err


def test_the_place_must_be_ours(place: Place) -> None:
    os.chmod(place.root / "run", 0o700)
    (place.root / "elsewhere").mkdir()
    target = place.root / "run" / "37a8eec1"  # of the name `default`
    target.symlink_to(place.root / "elsewhere")
    done = place.run("run", *SCRIPTED, "hi", code=4)
    assert "refusing to put sockets there" in done.err


def test_odd_things_among_the_recordings_stop_nobody(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    kept = place.json("run", *SCRIPTED, "--steps", "2", "--json", "Hello")[-1]["session"]
    place.run("daemon", "stop")
    (recording,) = place.root.rglob(f"{kept}.lir")
    os.mkfifo(recording.with_name("FIFO0000.lir"))
    recording.with_name("ZERO0000.lir").symlink_to("/dev/zero")
    recording.with_name("GONE0000.lir").symlink_to("nowhere")
    recording.with_name("LOOP0000.lir").symlink_to("LOOP0000.lir")
    recording.with_name("RAND0000.lir").write_bytes(os.urandom(4096))
    place.run("daemon", "start", *SCRIPTED)
    listed = {row["session"]: row["status"] for row in place.json("sessions", "list", "--json")}
    assert listed == {kept: "closed", "RAND0000": "foreign"}
    place.run("export", "/dev/zero", "--to", "text", code=6)
    loop = recording.with_name("LOOP0000.lir")
    place.run("export", str(loop), "--to", "text", code=6)
    said = complaint(place.run("export", kept, "--to", "csv", "--out", str(loop), code=4).err)
    assert said == [f"llm-inspect: cannot write {loop}: Too many levels of symbolic links"]
    assert loop.is_symlink()


@pytest.mark.fault("D6")
def test_something_else_where_the_daemon_has_its_files(place: Place) -> None:
    """Directories and pipes, by hand, before it starts: named, nothing waited for, left alone."""
    place.run("daemon", "start", *SCRIPTED)
    place.run("daemon", "stop")
    (runtime,) = (place.root / "run").iterdir()
    (counter,) = (place.root / "state").rglob("engine.count")
    state = counter.parent
    runtime_names = ("lock", "v.sock", "e.sock", "conn.json", "conn.json.new", "pieces.bin")
    state_names = ("options.json", "options.before.json", "daemon.log", "engine.count")
    for path in (*(runtime / name for name in runtime_names), *(state / n for n in state_names)):
        path.unlink(missing_ok=True)
        for make, kind in ((os.mkdir, "a directory"), (os.mkfifo, "a pipe")):
            make(path)
            said = complaint(place.run("daemon", "start", *SCRIPTED, code=4).err)
            assert said[0].startswith(f"llm-inspect: {path} is {kind}, where the daemon needs a ")
            assert said[1:] == ["Move it away, then start again"]
            assert path.is_dir() == (make is os.mkdir)
            path.rmdir() if path.is_dir() else path.unlink()
        path.symlink_to(path.name)  # to itself
        said = complaint(place.run("daemon", "start", *SCRIPTED, code=4).err)
        assert said[0].startswith(f"llm-inspect: {path} is a link")
        assert said[1:] == ["Move it away, then start again"]
        path.unlink()
    shutil.rmtree(state / "recordings", ignore_errors=True)
    (state / "recordings").write_bytes(b"mine")
    assert "needs a directory" in place.run("daemon", "start", *SCRIPTED, code=4).err
    assert (state / "recordings").read_bytes() == b"mine"
    (state / "recordings").unlink()
    (state / "recordings").symlink_to("recordings")
    said = complaint(place.run("daemon", "start", *SCRIPTED, code=4).err)
    assert said[0].endswith("is a link that leads in a circle, where the daemon needs a directory")


def test_something_else_where_a_living_daemon_has_its_files(place: Place) -> None:
    """What was put there is named; once it is moved away the daemon is reached again."""
    place.run("daemon", "start", *SCRIPTED)
    pid = place.status()["pid"]
    (runtime,) = (place.root / "run").iterdir()
    for name in ("v.sock", "conn.json"):
        path = runtime / name
        path.unlink()
        with suppress(FileExistsError):  # it looks every few seconds, and may have been first
            path.mkdir()
        if not path.is_dir():
            path.unlink()
            path.mkdir()
        said = complaint(place.run("daemon", "status", code=4).err)
        assert str(path) in said[0]
        assert said[1].startswith("Move away what lies there")
        path.rmdir()
        wait_for(lambda: place.run("daemon", "status", code=None).code == 0)
    recordings = next((place.root / "state").rglob("daemon.log")).with_name("recordings")
    shutil.rmtree(recordings, ignore_errors=True)
    recordings.write_bytes(b"mine")
    said = complaint(place.run("run", *SCRIPTED, "--steps", "2", "hi", code=4).err)
    assert str(recordings) in said[0]
    assert place.status()["pid"] == pid
    (runtime / "pieces.bin").unlink()
    (runtime / "pieces.bin").mkdir()
    place.run("daemon", "stop")
    assert "Traceback" not in recordings.with_name("daemon.log").read_text("utf-8")
