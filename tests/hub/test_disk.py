"""A disk that refuses: nothing is lost, everybody is told, and it goes on when there is space."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from engine_daemon.errors import InspectError
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.recording.reader import Recording
from tests.daemons import Daemon, directories, watching

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
