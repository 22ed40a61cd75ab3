"""A disk that refuses: nothing is lost, everybody is told, and it goes on when there is space."""

import re
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine_daemon.cli.filing import _rename_closed
from engine_daemon.errors import InspectError
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.codec import pack_event, unpack_event
from engine_daemon.recording.ending import closing, is_history
from engine_daemon.recording.format import frame
from engine_daemon.recording.reader import Recording
from engine_daemon.recording.writer import LogWriter
from tests.daemons import Daemon, directories, watching
from tests.end_to_end.command import SCRIPTED, Place
from tests.end_to_end.conftest import place as place
from tests.recording import logs

LIMIT = 100_000
"""Bytes a file of the daemon may have in this test (RLIMIT_FSIZE)."""


def limit_files(pid: int, size: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.mark.fault("R1")
async def test_a_full_disk_stops_the_session_says_so_and_lets_it_go_on() -> None:
    with directories(), Daemon("scripted:rate=200") as daemon:
        async with watching(daemon.paths, run_to=None) as watch:
            await watch.until(lambda c: len(c) >= 5)
            path = daemon.paths.recordings / f"{watch.session}.lir"
            # Not a byte more: not even the stop can be written.
            limit_files(daemon.pid, path.stat().st_size)
            await watch.until(lambda _: any(s.trouble for s in watch.client.state.sessions))
            info = watch.client.state.sessions[0]
            assert info.status == "paused"
            assert watch.client.state.engine.word == "ready"
            with pytest.raises(InspectError) as refused:
                await watch.client.command(cmd.RunTo(step=10**6), watch.session, watch.at())
            assert refused.value.code == "disk_full"
            stood = len(watch.columns)
            with Recording.open(path) as recording:
                assert recording.state == "open"
                assert [seq for seq, _ in recording.events()] == list(range(info.head))
            limit_files(daemon.pid, resource.RLIM_INFINITY)
            columns = await watch.until(lambda c: c.stop is not None)
            assert columns.stop is not None
            assert columns.stop.reason == "disk_full"
            await watch.run_to(stood + 5)
            await watch.standing(stood + 5)
            kinds = [type(unpack_event(packed)) for _, packed in watch.events]
            assert kinds.count(ev.EngineLost) == 0


@pytest.mark.fault("R1")
def test_a_run_ends_with_4_when_the_disk_is_full() -> None:
    with directories(), Daemon("scripted:rate=2000") as daemon:
        limit_files(daemon.pid, LIMIT)
        command = Path(sys.executable).with_name("llm-inspect")
        ended = subprocess.run(
            [command, "run", "hello", "--engine", "scripted", "--model", "scripted:rate=2000"],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 4
        assert b"cannot write" in ended.stderr
        assert b"attach --session" in ended.stderr


@pytest.mark.terminal
@pytest.mark.fault("R1")
def test_who_waits_for_a_step_and_who_looks_are_told_that_the_disk_is_full(place: Place) -> None:
    """There is room for the command and for nothing that comes of it, not even the stop. Found by
    use: `step` waited for ever, and the screen said nothing."""
    place.run("run", *SCRIPTED, "--steps", "3", "--keep", "Hello")
    (info,) = place.status()["sessions"]
    session = str(info["session"])
    with place.terminal("attach", columns=160) as screen:
        screen.until("Hello")
        pid = int(place.status()["pid"])
        limit_files(pid, place.recording(session).stat().st_size + 190)
        done = place.run("step", session, code=4)
        assert "cannot write" in done.err
        assert f"Free some space, then: llm-inspect resume {session}" in done.err
        told = place.run("daemon", "status").out.decode()
        assert "engine: ready" in told
        assert "(cannot write " in told
        shown = place.run("sessions", "show", session).out.decode()
        assert re.search("stopped by +a full disk", shown)
        assert re.search("trouble +cannot write ", shown)
        assert "paused, not written" in place.run("sessions", "list").out.decode()
        screen.until("NOT WRITTEN")
        screen.until(" · free some space, then go on")
        limit_files(pid, resource.RLIM_INFINITY)
        screen.until(lambda picture: "NOT WRITTEN" not in picture and "goes on" in picture)
        screen.press("q")
        screen.finish()
    assert "stands at step" in place.run("step", session).out.decode()


@pytest.mark.fault("R1")
async def test_a_title_whose_end_did_not_fit_the_disk_leaves_the_session_closed() -> None:
    """Found by use: the session was open again after the next start of the daemon."""
    with directories(), Daemon("scripted:rate=0") as daemon:
        async with watching(daemon.paths) as watch:
            await watch.standing(0)
            await watch.client.command(cmd.Close(), watch.session)
            await watch.until(lambda c: c.closed)
            path = daemon.paths.recordings / f"{watch.session}.lir"
            whole = path.stat().st_size
            await watch.client.command(cmd.Rename(title="first"), watch.session)
            last = closing(path)
            assert last is not None
            # Room for the command and the title once more, and not for the end.
            grown = path.stat().st_size - whole
            limit_files(daemon.pid, path.stat().st_size + grown - 1)
            with pytest.raises(InspectError) as refused:
                await watch.client.command(cmd.Rename(title="again"), watch.session)
            assert refused.value.code == "disk_full"
            await watch.until(lambda c: c.title == "again")
            assert watch.columns.closed
            with Recording.open(path) as recording:
                packed = recording.event(recording.next - 1)
                assert isinstance(unpack_event(packed or b""), ev.Renamed)
                assert (recording.state, recording.report()) == ("ok", [])
            assert is_history(path)
            limit_files(daemon.pid, resource.RLIM_INFINITY)
            await watch.client.command(cmd.Rename(title="third"), watch.session)
            end = closing(path)
            assert end is not None
            assert (end.by, end.cause) == (last.by, last.cause)


def test_a_closed_session_renamed_by_hand_on_a_full_disk_stays_closed(tmp_path: Path) -> None:
    path = tmp_path / "7ZK3M9QP.lir"
    logs.write_log(path, [logs.opened(), ev.Closed(count=1, by="user", t_ns=1, wall_ns=1)])
    title = frame(2, pack_event(ev.Renamed(title="x", t_ns=2**40, wall_ns=2**60)))
    with path.open("ab") as file:
        file.write(title)
    assert is_history(path)
    _rename_closed(path, "y")
    with Recording.open(path) as recording:
        last = unpack_event(recording.event(recording.next - 1) or b"")
        assert isinstance(last, ev.Closed)
        assert (last.by, last.count, recording.title) == ("user", recording.next - 1, "y")
    log = LogWriter.reopen(path)
    log.append(pack_event(ev.Reopened(epoch=b"e" * 16, lost_bytes=0, t_ns=3, wall_ns=3)))
    log.append(pack_event(ev.Renamed(title="open again", t_ns=3, wall_ns=3)))
    log.close()
    assert not is_history(path)


def test_several_rename_one_closed_session_at_once(tmp_path: Path) -> None:
    """Found by use: those who came second were told that another daemon writes it."""
    path = tmp_path / "7ZK3M9QP.lir"
    logs.write_log(path, [logs.opened(), ev.Closed(count=1, by="user", t_ns=1, wall_ns=1)])
    held = LogWriter.reopen(path)
    with ThreadPoolExecutor(4) as pool:
        titles = [pool.submit(_rename_closed, path, f"title {k}") for k in range(4)]
        held.close()
        for one in titles:
            one.result()
    with Recording.open(path) as recording:
        kinds = [type(unpack_event(packed)).__name__ for _, packed in recording.events()]
    assert kinds == ["Opened", "Closed", *["Renamed", "Closed"] * 4]
