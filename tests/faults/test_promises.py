"""What the daemon and the commands touch, run and tell: S7, S8, S12, S13, R6."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_daemon.errors import InspectError
from engine_daemon.export.jsonl import export
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.reader import Recording
from tests.daemons import running_daemon, watching
from tests.end_to_end.command import COMMAND, Place
from tests.end_to_end.terminal import Terminal
from tests.export.samples import hostile
from tests.faults.test_daemon import plain_frames
from tests.faults.test_wire import Record, _fuzz
from tests.recording.logs import MODEL, engine_started, framed, opened, packed, session
from tests.tui.recordings import write
from tests.tui.story import Story

ROOT = Path(__file__).parents[2]
INJECTED = Path(__file__).parent / "injected"
RUNNING_CODE = re.compile(r"\d+ (?!open )")
"""A line of the audit that is no opened file: code was run, a process begun, a connection made."""


@contextmanager
def audited(environment: dict[str, str] | None = None) -> Iterator[Path]:
    """Processes started inside write what they do into this file."""
    env = os.environ if environment is None else environment
    before = {name: env.get(name) for name in ("PYTHONPATH", "LLM_INSPECT_TEST_AUDIT")}
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"li-audit-{os.getpid()}"
    path.unlink(missing_ok=True)
    env["LLM_INSPECT_TEST_AUDIT"] = str(path)
    env["PYTHONPATH"] = os.pathsep.join([str(INJECTED), str(ROOT)])
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
        for name, value in before.items():
            env.pop(name)
            if value is not None:
                env[name] = value


@pytest.mark.fault("S7")
async def test_nothing_runs_code_while_messages_are_broken(record_property: Record) -> None:
    import random

    with audited() as audit, running_daemon("scripted:rate=200,context=100000") as daemon:
        async with watching(daemon.paths) as watch:
            await watch.standing(0)
            await watch.run_to(1)
            await watch.standing(1)
            before = len(audit.read_text().splitlines())
            assert before > 100
            _fuzz(daemon, random.Random(7))
            await watch.run_to(2)
            await watch.standing(2)
        did = [line for line in audit.read_text().splitlines()[before:] if RUNNING_CODE.match(line)]
        family = {str(p.pid) for p in psutil.Process(daemon.pid).children()} | {str(daemon.pid)}
        assert [line for line in did if line.split()[0] in family] == []
    record_property("figure", "10,000 broken messages: no code run, no process, no connection")


def forged(canary: Path) -> list[bytes]:
    """Recordings whose every name is a path, and whose texts are attacks."""
    model = msgspec.structs.replace(MODEL, name=str(canary), architecture=f"../..{canary}")
    paths = [opened(name=str(canary)), *session()[1:]]
    paths[1:1] = [engine_started(model)]
    return [b"".join(framed(packed(events))) for events in (paths, hostile())]


@pytest.mark.fault("S8", "S7")
def test_opening_a_recording_touches_nothing_but_it(place: Place, tmp_path: Path) -> None:
    """Exported in every format and summed up where there is no network, with every file that is
    opened and every process that is begun on record."""
    canary = planted(tmp_path)
    with audited(place.env) as audit:
        for number, raw in enumerate(forged(canary)):
            file = place.cwd / f"{number}.lir"
            file.write_bytes(raw)
            for form in ("jsonl", "csv", "html", "trace", "text"):
                _without_network(place, "export", str(file), "--to", form)
        _touched_nothing(audit.read_text().splitlines(), place, canary)


@pytest.mark.terminal
@pytest.mark.fault("S8", "S7")
def test_replaying_a_recording_touches_nothing_but_it(place: Place, tmp_path: Path) -> None:
    """On a real terminal, there and back again."""
    canary = planted(tmp_path)
    with audited(place.env) as audit:
        for number, raw in enumerate(forged(canary)):
            file = place.cwd / f"{number}.lir"
            file.write_bytes(raw)
            words = [*_alone(), str(COMMAND), "replay", str(file)]
            with Terminal(words, place.env, place.cwd) as screen:
                screen.until("REPLAY")
                for key, seen in (("G", "G last"), ("g", "step 0 of"), ("s", "step 1 of")):
                    screen.press(key)
                    screen.until(seen)
                screen.press("?")
                screen.until("HELP ─")
                screen.press("escape")
                screen.until(lambda picture: "HELP ─" not in picture)
                screen.press("q")
                screen.finish()
        lines = audit.read_text().splitlines()
        # The terminal of the tests begins as a Python that becomes the command.
        _touched_nothing([line for line in lines if "TIOCSCTTY" not in line], place, canary)


def planted(folder: Path) -> Path:
    """What a recording points at, as if it were a checkpoint."""
    canary = folder / "canary"
    canary.mkdir()
    (canary / "config.json").write_text("{}")
    return canary


def _touched_nothing(lines: list[str], place: Place, canary: Path) -> None:
    assert len(lines) > 100
    assert not [line for line in lines if str(canary) in line.partition(" [")[0]]
    opened_files = {line.split(" ")[2] for line in lines if line.split(" ")[1] == "open"}
    ours = (str(place.cwd), str(place.root / "config"), sys.prefix, sys.base_prefix, str(ROOT))
    allowed = (*ours, "/dev/", "/proc/", "/usr/", "/etc/localtime")
    strangers = {path for path in opened_files if not path.startswith(allowed)}
    assert {path for path in strangers if path.startswith("/")} == set()
    forbidden = ("pickle", "os.", "socket.", "subprocess.")
    assert not [line for line in lines if line.split(" ")[1].startswith(forbidden)]


def _alone() -> list[str]:
    """Words before a command that leave it without a network, where that is allowed."""
    namespace = ["unshare", "--map-root-user", "--net"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode
    ):
        return []
    return [str(shutil.which("unshare")), *namespace[1:]]


def _without_network(place: Place, *words: str) -> None:
    done = subprocess.run(
        [*_alone(), COMMAND, *words],
        env=place.env,
        cwd=place.cwd,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.fault("S12")
def test_prompts_and_tokens_are_where_they_belong_alone(place: Place) -> None:
    """Planted words: a prompt, a forced text, a note's, and an access token."""
    prompt, forced, token = "canaryprompt", "canaryforced", "hf_canarytoken"
    place.env["HF_TOKEN"] = token
    place.run("daemon", "start", "--engine", "scripted", "--model", "scripted:rate=0")
    piped = ("run", "--prompt-file", "-", "--steps")
    done = place.run(*piped, "3", "--keep", "--json", stdin=prompt.encode())
    name = done.lines[-1]["session"]
    place.run("step", name)
    place.run("force", name, "--text", forced)
    place.run(*piped, "2", stdin=prompt.encode())
    (connection,) = place.connections()
    daemon = psutil.Process(int(connection["pid"]))
    family = [daemon, *daemon.children(recursive=True)]
    lines = [" ".join(process.cmdline()) for process in family]
    assert len(lines) == 3
    words = (prompt, forced, token)
    assert not [line for line in lines if any(word in line for word in words)]
    recorded = 0
    for path in place.root.rglob("*"):
        if not path.is_file():
            continue
        raw = path.read_bytes()
        assert token.encode() not in raw, path
        if path.suffix == ".lir":
            recorded += prompt.encode() in raw
        else:
            assert prompt.encode() not in raw, path
            assert forced.encode() not in raw, path
    assert recorded >= 1


@pytest.mark.fault("S13")
def test_the_documents_say_what_is_out_of_scope() -> None:
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    promises = dict(re.findall(r"^\| (S\d+) \| (.*) \|$", text, re.MULTILINE))
    assert set(promises) == {f"S{number}" for number in range(1, 15)}
    assert "Out of scope: a hostile process of the same user" in promises["S13"]
    assert "docs/security.md" in (ROOT / "README.md").read_text("utf-8")


# Recordings ---------------------------------------------------------------------------------------


@pytest.mark.fault("R6")
async def test_a_copy_of_a_log_that_is_written_is_a_sound_prefix(
    tmp_path: Path, record_property: Record
) -> None:
    """Copied again and again while a daemon writes it."""
    copies = 0
    with running_daemon("scripted:rate=2000,context=1000000") as daemon:
        async with watching(daemon.paths, run_to=None) as watch:
            path = daemon.paths.recordings / f"{watch.session}.lir"
            for count in range(5, 200, 5):
                await watch.until(lambda c, n=count: len(c) > n)  # type: ignore[misc]
                copy = tmp_path / "copy.lir"
                shutil.copy(path, copy)
                with Recording.open(copy) as recording:
                    assert recording.state in ("open", "cut")
                    events = list(recording.events())
                payloads, rest = plain_frames(copy.read_bytes())
                assert [payload for _, payload in events] == payloads
                assert (rest > 0) == (recording.state == "cut")
                copies += 1
            known = [packed for _, packed in watch.events]
            assert payloads[: len(known)] == known[: len(payloads)]
    record_property("figure", f"{copies} copies, each a sound prefix")


@pytest.mark.terminal
@pytest.mark.fault("R6")
@pytest.mark.parametrize("steps", [5, pytest.param(30, marks=pytest.mark.soak)])
def test_a_replay_follows_what_is_written(
    steps: int, place: Place, record_property: Record
) -> None:
    """From the write of a step to its number on a real terminal."""
    story = Story().tokens((b" first", 0.5), (b" second", 0.5))
    file = place.cwd / "growing.lir"
    write(file, story.log)
    late = []
    with place.terminal("replay", str(file)) as screen:
        screen.until("of 1")
        for last in range(2, steps + 2):
            before = len(story.log)
            story.tokens((b" more", 0.5))
            began = time.monotonic()
            write(file, story.log, before)
            screen.until(f"of {last}")
            late.append(time.monotonic() - began)
        screen.press("q")
        screen.finish()
    record_property("figure", f"written to seen on a screen: worst {max(late) * 1000:.0f} ms")
    if steps == 30:
        assert max(late) <= 0.4


WHOLE = b"".join(framed(packed(hostile())))


@pytest.mark.fault("R5")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.integers(0, len(WHOLE)), st.integers(0, len(WHOLE)), st.binary(max_size=40)
            ),
            st.tuples(
                st.integers(0, len(WHOLE)), st.just(0), st.sampled_from([WHOLE[:90], b"\xf5LIR"])
            ),
        ),
        max_size=4,
    )
)
def test_a_recording_changed_anywhere_gives_no_altered_event(
    tmp_path: Path, changes: list[tuple[int, int, bytes]]
) -> None:
    """Cut out, written over, put in: what is given is one of the events, in its place."""
    raw = bytearray(WHOLE)
    for at, size, instead in changes:
        raw[at : at + size] = instead
    path = tmp_path / "a.lir"
    path.write_bytes(bytes(raw))
    sound = plain_frames(WHOLE)[0]
    columns = Columns()
    try:
        with Recording.open(path, columns) as recording:
            found = list(recording.events())
            if found:
                list(export(recording))
    except InspectError:
        return
    assert all(seq < len(sound) and sound[seq] == payload for seq, payload in found)
