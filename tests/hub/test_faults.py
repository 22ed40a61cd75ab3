"""What breaks: worker, tokens process, hub, terminal, files in the way, garbage on the socket."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from engine_daemon.client import DaemonClient
from engine_daemon.errors import Exit, InspectError
from engine_daemon.launch import start_daemon, wait_ready
from engine_daemon.lookup import is_running
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.values import PromptSpec, Sampler
from tests.daemons import (
    Daemon,
    Watch,
    attached,
    children,
    directories,
    running_daemon,
    wait_for,
    watching,
)

SLOW = "scripted:rate=200"


def dead(watch: Watch) -> bool:
    """And not to be started again."""
    engine = watch.client.state.engine
    return engine.word == "dead" and not engine.details.again


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.fault("E1")
async def test_a_worker_killed_in_a_run_is_started_again_and_the_session_goes_on(
    record_property: Callable[[str, object], None],
) -> None:
    sampler = Sampler(greedy=False, temperature=1.0, seed=5)
    with running_daemon(SLOW) as daemon:
        async with watching(daemon.paths, sampler=sampler, run_to=40) as undisturbed:
            expected = (await undisturbed.standing(40)).ids.tolist()
        async with watching(daemon.paths, sampler=sampler, run_to=None) as watch:
            await watch.until(lambda c: len(c) >= 5)
            before = len(watch.columns)
            killed = time.monotonic()
            children(daemon.pid)["worker"].kill()
            await watch.until(lambda _: "dead" in watch.words)
            to_dead = time.monotonic() - killed
            columns = await watch.until(lambda c: c.status == "paused")
            assert columns.lost is not None
            assert (columns.lost.signal, columns.lost.exit_code) == ("SIGKILL", None)
            assert len(columns) >= before
            assert columns.stop is not None
            assert columns.stop.reason == "engine_lost"
            await watch.until(
                lambda _: (
                    (watch.client.state.engine.engine, watch.client.state.engine.word)
                    == (2, "ready")
                )
            )
            to_ready = time.monotonic() - killed
            record_property(
                "figure", f"{to_dead:.2f} s to dead; ready again after {to_ready:.2f} s"
            )
            at_death = watch.words.index("dead")
            assert watch.words[at_death : at_death + 2] == ["dead", "starting"]
            await watch.run_to(40)
            columns = await watch.standing(40)
            assert columns.ids.tolist() == expected
            assert [branch.id for branch in columns.branches()] == [0]
            assert [seq for seq, _ in watch.events] == list(range(watch.columns.next))
            starts = [
                event.engine
                for _, packed in watch.events
                if isinstance(event := unpack_event(packed), ev.EngineStarted)
            ]
            assert starts == [1, 2]


@pytest.mark.fault("E1")
async def test_a_worker_that_keeps_dying_is_given_up_and_history_stays() -> None:
    with running_daemon(SLOW) as daemon:
        async with watching(daemon.paths, run_to=3) as watch:
            await watch.standing(3)
            for start in range(1, 5):
                await watch.until(lambda _: watch.client.state.engine.word == "ready")
                assert watch.client.state.engine.engine == start
                children(daemon.pid)["worker"].kill()
                await watch.until(
                    lambda _, n=start: (
                        dead(watch)  # type: ignore[misc]
                        or (watch.client.state.engine.engine, watch.client.state.engine.word)
                        == (n + 1, "ready")
                    )
                )
            assert watch.client.state.engine.word == "dead"
            with pytest.raises(InspectError) as caught:
                await watch.run_to(None)
            assert caught.value.code == "no_engine"
            async with attached(daemon.paths, watch.session) as late:
                await late.until(lambda c: len(c) == 3)


async def test_the_tokens_process_is_started_again() -> None:
    with running_daemon(SLOW) as daemon:
        async with DaemonClient(daemon.paths) as client:
            children(daemon.pid)["tokens"].kill()
            reply = await client.command(cmd.Open(prompt=PromptSpec(text=b"after the kill")))
            assert reply.session is not None
            async with attached(daemon.paths, reply.session) as watch:
                columns = await watch.standing(0)
                assert b"".join(t.piece for t in columns.prompt_tokens) == b"after the kill"


@pytest.mark.parametrize("state", ["loading", "paused", "running"])
@pytest.mark.fault("D5")
async def test_stop_is_clean(state: str, record_property: Callable[[str, object], None]) -> None:
    model = "scripted:load_ms=600000" if state == "loading" else SLOW
    with directories():
        daemon = Daemon(model).start(wait="hub")
        pid = daemon.pid
        async with watching(daemon.paths, run_to=None if state == "running" else 0) as watch:
            if state != "loading":
                await watch.until(lambda c: len(c) > 3 if state == "running" else bool(c.stop))
            family = [psutil.Process(pid), *children(pid).values()]
            os.kill(pid, signal.SIGTERM)
            began = time.monotonic()
            wait_for(lambda: all(gone(process) for process in family))
            record_property("figure", f"{state}: {time.monotonic() - began:.2f} s")
            path = daemon.paths.recordings / f"{watch.session}.lir"
        assert b"Closed" in path.read_bytes()[-200:]
        assert not is_running(daemon.paths)


@pytest.mark.fault("D5")
async def test_stop_ends_a_worker_that_does_not_listen() -> None:
    with running_daemon(SLOW) as daemon:
        worker = children(daemon.pid)["worker"]
        worker.suspend()
        daemon.stop()
        wait_for(lambda: gone(worker))


@pytest.mark.parametrize("moment_ms", [0, 40, 120, 400])
@pytest.mark.fault("D2")
def test_children_end_with_a_killed_hub(
    moment_ms: int, record_property: Callable[[str, object], None]
) -> None:
    with directories():
        daemon = Daemon("scripted:load_ms=100").start(wait="hub")
        wait_for(lambda: len(children(daemon.pid)) == 2)
        family = list(children(daemon.pid).values())
        deadline = time.monotonic() + moment_ms / 1000
        wait_for(lambda: time.monotonic() >= deadline)
        daemon.kill()
        began = time.monotonic()
        wait_for(lambda: all(gone(process) for process in family), 5)
        took = time.monotonic() - began
        record_property("figure", f"killed {moment_ms} ms after its start: {took:.2f} s")


def test_the_daemon_survives_the_terminal_it_was_started_from() -> None:
    """Own session, no terminal, stdio in its log: a SIGHUP to the starter's group misses it."""
    with directories():
        script = (
            "from tests.daemons import Daemon\n"
            "Daemon('scripted').start()\n"
            "import os, signal\n"
            "os.killpg(0, signal.SIGHUP)\n"
        )
        root = Path(__file__).parents[2]
        ended = subprocess.run(
            [sys.executable, "-c", script], cwd=root, start_new_session=True, check=False
        )
        assert ended.returncode == -signal.SIGHUP
        daemon = Daemon()
        try:
            process = psutil.Process(daemon.pid)
            assert os.getsid(process.pid) == process.pid
            assert process.cwd() == "/"
            assert process.terminal() is None
            assert {os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in (1, 2)} == {
                str(daemon.paths.log)
            }
        finally:
            daemon.stop()


@pytest.mark.fault("D6")
def test_a_second_daemon_refuses_and_the_first_goes_on() -> None:
    with running_daemon() as daemon:
        pid = daemon.pid
        with pytest.raises(InspectError) as caught:
            start_daemon(daemon.paths, daemon.options)
        assert caught.value.exit_code == Exit.DAEMON
        assert daemon.pid == pid
        asyncio.run(wait_ready(daemon.paths))


@pytest.mark.fault("D6")
def test_a_file_where_the_socket_should_be_is_left_untouched() -> None:
    with directories():
        daemon = Daemon()
        daemon.paths.runtime.mkdir(parents=True, mode=0o700)
        daemon.paths.viewer_socket.write_text("mine")
        with pytest.raises(InspectError) as caught:
            daemon.start()
        assert caught.value.exit_code == Exit.DAEMON
        assert daemon.paths.viewer_socket.read_text() == "mine"


@pytest.mark.fault("D6", "S2")
def test_a_runtime_directory_that_is_not_ours_alone_is_refused(tmp_path: Path) -> None:
    with directories():
        daemon = Daemon()
        daemon.paths.runtime.parent.mkdir(parents=True)
        daemon.paths.runtime.symlink_to(tmp_path)
        with pytest.raises(InspectError, match="not a directory"):
            daemon.start()
        daemon.paths.runtime.unlink()
        daemon.paths.runtime.mkdir()
        daemon.paths.runtime.chmod(0o777)
        with pytest.raises(InspectError, match="open to others"):
            daemon.start()


@pytest.mark.fault("S1")
def test_sockets_and_files_are_private() -> None:
    with running_daemon() as daemon:
        paths = daemon.paths
        assert paths.runtime.stat().st_mode & 0o777 == 0o700
        private = (
            paths.viewer_socket,
            paths.engine_socket,
            paths.connection,
            paths.lock,
            paths.log,
        )
        for path in private:
            assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.fault("S3")
def test_nothing_listens_on_the_network() -> None:
    with running_daemon() as daemon:
        for process in (psutil.Process(daemon.pid), *children(daemon.pid).values()):
            assert process.net_connections(kind="inet") == []


async def test_a_model_that_cannot_be_loaded_ends_the_daemon_with_the_reason() -> None:
    with directories():
        daemon = Daemon("scripted:no_such_key=1")
        with pytest.raises(InspectError) as caught:
            daemon.start()
        assert caught.value.exit_code == Exit.MODEL
        assert "no_such_key" in caught.value.message
        wait_for(lambda: not is_running(daemon.paths))


def test_idle_exit_zero_leaves_with_the_last_viewer() -> None:
    with directories():
        daemon = Daemon()
        daemon.options = type(daemon.options)(engine=daemon.options.engine, idle_exit_s=0.0)
        daemon.start()
        wait_for(lambda: not is_running(daemon.paths))


def test_a_daemon_without_viewers_leaves_after_its_time_but_not_while_a_session_runs() -> None:
    with directories():
        daemon = Daemon(SLOW)
        daemon.options = type(daemon.options)(engine=daemon.options.engine, idle_exit_s=1.0)
        daemon.start()
        asyncio.run(_open_and_leave(daemon, run_to=500))
        begin = time.monotonic()
        wait_for(lambda: not is_running(daemon.paths))
        assert time.monotonic() - begin > 2.0  # 500 steps at 200 a second, then 1 s


async def _open_and_leave(daemon: Daemon, run_to: int) -> None:
    async with DaemonClient(daemon.paths) as client:
        await client.command(cmd.Open(prompt=PromptSpec(text=b"go on"), run_to=run_to))
