"""The runtime directory under a living daemon: cleaned away, and left behind."""

import shutil

from engine_daemon.client import DaemonClient, is_running
from tests.daemons import attached, running_daemon, wait_for, watching


async def test_a_runtime_directory_that_is_cleaned_away_comes_back_with_its_sessions() -> None:
    with running_daemon("scripted:rate=200") as daemon:
        pid = daemon.pid
        async with watching(daemon.paths) as watch:
            await watch.standing(0)
            shutil.rmtree(daemon.paths.runtime)
            wait_for(lambda: daemon.paths.connection.exists() and is_running(daemon.paths), 15)
            assert daemon.pid == pid
            async with attached(daemon.paths, watch.session) as other:
                await other.standing(0)
                await watch.run_to(2)
                await watch.standing(2)
                await other.standing(2)


async def test_a_missing_socket_alone_comes_back_too() -> None:
    with running_daemon() as daemon:
        daemon.paths.viewer_socket.unlink()
        wait_for(daemon.paths.viewer_socket.exists, 15)
        async with DaemonClient(daemon.paths) as client:
            assert client.state.engine.word == "ready"


def test_a_daemon_that_leaves_takes_its_sockets_with_it() -> None:
    with running_daemon() as daemon:
        daemon.stop()
        assert [path.name for path in daemon.paths.runtime.iterdir()] == ["lock"]
