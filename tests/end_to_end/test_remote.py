"""`attach ssh://…` through a real sshd: the way there, and that nothing is left behind."""

import os
import shutil
import signal
import time
from contextlib import suppress

import psutil
import pytest

from engine_daemon.errors import InspectError
from engine_daemon.remote.address import Remote
from engine_daemon.remote.tunnel import Tunnel
from tests.daemons import PATIENCE_S, wait_for
from tests.end_to_end.command import COMMAND, Place, alive
from tests.end_to_end.far import box as box
from tests.end_to_end.far import folders, near, nothing_left, paused, status, step
from tests.end_to_end.sshd import Box, ours
from tests.end_to_end.terminal import Terminal
from tests.lacking import lacking

pytestmark = pytest.mark.terminal


@pytest.mark.fault("S3")
def test_watch_step_and_leave(place: Place, box: Box) -> None:
    (box.root / ".bashrc").write_text('echo Welcome to the box; echo \'{"socket": "/evil"}\'\n')
    session = paused(box)
    with place.terminal("attach", "ssh://box", "--as", "me") as screen:
        screen.until("step 2 pending")
        screen.until("Hello␣far")
        (folder,) = folders(place)
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
        for process in (*ours(place), psutil.Process(screen.process.pid)):  # no TCP port, ever
            assert [c for c in process.net_connections("inet") if c.status == "LISTEN"] == []
        screen.press("s")
        screen.until("step 3 pending")
        wait_for(lambda: step(box) == 3)
        (viewer,) = status(box)["viewers"]
        assert (viewer["who"], viewer["role"]) == ("me", "controller")
        screen.press("q")
        assert f"attach ssh://box --session {session}" in screen.finish()
    nothing_left(place, box)


def test_observe_one_session_of_a_named_daemon(place: Place, box: Box) -> None:
    session = paused(box, "--name", "big")
    with place.terminal(
        *("attach", "ssh://box/big", "--observe", "--as", "eve", "--session", session[:4])
    ) as screen:
        screen.until("OBSERVING")
        screen.until("step 2 pending")
        screen.press("space")
        screen.until("only observes")
        (viewer,) = status(box, "--name", "big")["viewers"]
        assert (viewer["who"], viewer["role"]) == ("eve", "observer")
        screen.press("q")
        screen.finish()
    with place.terminal("attach", "ssh://box/big", "--session", "ZZZ") as screen:
        assert "no session 'ZZZ'" in screen.finish(2)
    nothing_left(place, box)
    box.run("daemon", "stop", "--name", "big")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)]
)
def test_signals_leave_nothing_behind(
    place: Place, box: Box, number: signal.Signals, code: int
) -> None:
    paused(box)
    with place.terminal("attach", "ssh://box") as screen:
        screen.until("step 2 pending")
        screen.process.send_signal(number)
        screen.finish(code)
    if number == signal.SIGKILL:  # ssh ends by itself; the folder goes with the next one
        wait_for(lambda: ours(place) == [])
        (folder,) = folders(place)
        long_ago = time.time() - 3600
        os.utime(folder, (long_ago, long_ago))
        with place.terminal("attach", "ssh://box") as screen:
            screen.until("step 2 pending")
            assert not folder.exists()
            screen.press("q")
            screen.finish()
    nothing_left(place, box)


def test_the_end_of_the_terminal_leaves_nothing_behind(place: Place, box: Box) -> None:
    paused(box)
    with place.terminal("attach", "ssh://box") as screen:
        screen.until("step 2 pending")
        screen.hang_up()
        screen.process.wait(timeout=PATIENCE_S)
    nothing_left(place, box)


def test_interrupted_while_it_logs_in(place: Place, box: Box) -> None:
    box.network.freeze()
    with place.terminal("attach", "ssh://box") as screen:
        wait_for(lambda: ours(place) != [])
        screen.press("ctrl+c")
        screen.finish(130)
    box.network.thaw()
    nothing_left(place, box)


def test_in_tmux(place: Place, box: Box) -> None:
    """As people do it: a multiplexer, its keys, and a window that is closed."""
    tmux = shutil.which("tmux")
    if tmux is None:
        lacking("tmux")
    paused(box)
    multiplexer = [tmux, "-f", "/dev/null", "-S", str(place.root / "tmux")]
    env = {**place.env, "SHELL": "/bin/sh"}
    command = [*multiplexer, "new-session", "-x", "120", "-y", "40"]
    with Terminal(
        [*command, "llm-inspect attach ssh://box"], with_command(env), place.cwd
    ) as outer:
        outer.until("step 2 pending")
        outer.press("s")
        outer.until("step 3 pending")
        box.network.cut()
        outer.until("LINK LOST")
        box.network.heal()
        outer.until(lambda picture: "LINK LOST" not in picture and "PAUSED" in picture)
        outer.press("s")
        outer.until("step 4 pending")
        outer.press("\x02", "&")  # close the window …
        outer.until("kill-window")
        outer.press("y")
        outer.process.wait(timeout=PATIENCE_S)
    nothing_left(place, box)


def with_command(env: dict[str, str]) -> dict[str, str]:
    """`llm-inspect` is on the PATH."""
    return {**env, "PATH": f"{COMMAND.parent}:{env['PATH']}"}


def test_a_tunnel_that_is_closed_is_not_mended(place: Place, box: Box) -> None:
    paused(box)
    with near(place):
        tunnel = Tunnel(Remote("box"), print)
        with tunnel:
            tunnel.mend()
            (ssh,) = ours(place)
            ssh.kill()
            wait_for(lambda: not alive(ssh.pid))
            tunnel.mend()
            assert ours(place) != []
        with pytest.raises(InspectError, match="closed"):
            tunnel.mend()
        with suppress(InspectError):
            tunnel.close()
    nothing_left(place, box)
