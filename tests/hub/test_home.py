"""The runtime directory under a living daemon: cleaned away, and left behind."""

import shutil
import time

from engine_daemon.client import DaemonClient
from engine_daemon.hub.home import CHECK_S, Home
from engine_daemon.lookup import is_running
from engine_daemon.paths import is_let_through, paths_for
from tests.daemons import attached, directories, running_daemon, wait_for, watching


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


def test_a_shared_daemon_lives_on_when_a_folder_above_is_closed() -> None:
    with directories() as root:
        paths = paths_for()
        for folder in (root, paths.runtime.parent):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o711)
        home = Home(paths, shared=True)
        home.announce(b"12345678")
        for socket in (paths.viewer_socket, paths.engine_socket):
            socket.touch()
        root.chmod(0o700)
        now = time.monotonic() + 2 * CHECK_S
        assert not home.vanished(now)
        paths.runtime.chmod(0o700)
        root.chmod(0o711)
        assert not home.vanished(now + 2 * CHECK_S)
        assert is_let_through(paths)
        home.close()
