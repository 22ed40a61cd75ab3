"""`attach ssh://…` through a real sshd: the way there, lost links, what stands in the way."""

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine_daemon.client import DaemonClient, LinkLost, LinkUp
from engine_daemon.errors import InspectError
from engine_daemon.paths import paths_for
from engine_daemon.protocol.commands import Batch, RunTo
from engine_daemon.remote.address import Remote
from engine_daemon.remote.tunnel import Tunnel
from tests.daemons import PATIENCE_S, wait_for
from tests.end_to_end.command import Place, alive
from tests.end_to_end.sshd import Box, free_port, ours
from tests.end_to_end.terminal import Terminal

pytestmark = pytest.mark.terminal

ENGINE = ("--engine", "scripted", "--model", "scripted:rate=100,context=100000")


@pytest.fixture
def box(place: Place) -> Iterator[Box]:
    """Another machine, on which nothing runs yet."""
    with Box(place) as made:
        yield made


def paused(box: Box, *words: str) -> str:
    """A session over there that stands at step 2; its id."""
    box.run("daemon", "start", *ENGINE, *words)
    box.run("run", *words, "--until", "step=2", "--keep", "Hello far")
    (session,) = status(box, *words)["sessions"]
    assert (session["status"], session["place"]["step"]) == ("paused", 2)
    return str(session["session"])


def status(box: Box, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(box.run("daemon", "status", "--json", *words))
    return found


def step(box: Box) -> int:
    return int(status(box)["sessions"][0]["place"]["step"])


def folders(place: Place) -> list[Path]:
    """What tunnels have in the runtime directory."""
    return list((place.root / "run").glob("s-*"))


def nothing_left(place: Place, box: Box) -> None:
    """No process here or there, no file."""
    wait_for(lambda: ours(place) == [])
    wait_for(lambda: box.logins() == [])
    assert folders(place) == []


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


# The link -----------------------------------------------------------------------------------------


def test_a_dropped_link_comes_back_by_itself(place: Place, box: Box) -> None:
    paused(box)
    with place.terminal("attach", "ssh://box") as screen:
        screen.until("step 2 pending")
        for cut in (box.network.cut, lambda: kill(ours(place)), lambda: kill(box.logins())):
            before = step(box)
            box.network.heal()
            cut()
            screen.until("LINK LOST")
            if cut == box.network.cut:
                screen.until("cannot reach box")
                screen.press("s")
                screen.until("not sent")
            box.network.heal()
            screen.until(lambda picture: "LINK LOST" not in picture and "PAUSED" in picture)
            assert step(box) == before
            screen.press("s")
            screen.until(f"step {before + 1} pending")
        screen.press("q")
        screen.finish()
    nothing_left(place, box)


def kill(processes: list[Any]) -> None:
    assert processes
    for process in processes:
        process.kill()


@contextmanager
def near(place: Place) -> Iterator[None]:
    """This process is at the near place."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(place.env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def test_no_step_is_missed_over_a_link_that_drops(place: Place, box: Box) -> None:
    """A session runs; the cable is pulled out and put in again: each event comes once, in order."""
    session = paused(box)
    with near(place), Tunnel(Remote("box"), print) as tunnel:
        seqs, lost = asyncio.run(followed(tunnel, session, box))
    assert lost == 3
    assert seqs == list(range(len(seqs)))
    nothing_left(place, box)


async def followed(tunnel: Tunnel, session: str, box: Box) -> tuple[list[int], int]:
    seqs: list[int] = []
    lost = 0
    async with DaemonClient(tunnel.paths(paths_for()), tunnel=tunnel) as client:
        client.follow(session)
        place = client.state.sessions[0].place
        from engine_daemon.protocol.commands import At

        await client.command(RunTo(step=None), session, At(branch=0, step=place.step))
        async with asyncio.timeout(PATIENCE_S):
            count = 50
            async for updates in client.updates():
                for update in updates:
                    if isinstance(update, Batch):
                        seqs += [seq for seq, _ in update.ev]
                    elif isinstance(update, LinkLost):
                        box.network.heal()
                    elif isinstance(update, LinkUp):
                        lost, count = lost + 1, len(seqs) + 50
                if len(seqs) > count and client.connected:
                    if lost == 3:
                        return seqs, lost
                    count = 10**9
                    box.network.cut()
    raise AssertionError("the updates ended")


def test_a_passphrase_is_asked_for_before_the_screen_and_never_on_it(
    place: Place, box: Box
) -> None:
    paused(box)
    box.lock_key("open sesame")
    with place.terminal("attach", "ssh://box") as screen:
        screen.until("Enter passphrase for key")
        screen.press("open sesame", "enter")
        screen.until("step 2 pending")
        box.network.cut()
        screen.until("cannot reach box")
        box.network.heal()
        screen.until("cannot log in as box")
        screen.until("q leaves, then")
        screen.press("s")
        screen.until("not sent")
        assert "passphrase" not in screen.text()
        screen.press("q")
        screen.finish()
    assert b"open sesame" not in screen.output
    nothing_left(place, box)


@pytest.mark.fault("W6")
def test_keys_over_a_stalled_link_never_act(place: Place, box: Box) -> None:
    """Everything that was sent arrives once the link moves again; nothing of it is done."""
    paused(box)
    with place.terminal("attach", "ssh://box", "--as", "me") as screen:
        screen.until("step 2 pending")
        box.network.freeze()
        screen.press("s")  # before anybody can know
        screen.until("LINK LOST")
        screen.press("s", "s", "space")
        screen.until("not sent")
        box.network.thaw()
        screen.until(lambda picture: "LINK LOST" not in picture and "PAUSED" in picture)
        assert step(box) == 2
        screen.press("s")
        screen.until("step 3 pending")
        assert step(box) == 3
        screen.press("q")
        screen.finish()
    nothing_left(place, box)


@pytest.mark.fault("W6")
def test_a_key_of_which_it_was_said_that_no_answer_came_never_acts(place: Place, box: Box) -> None:
    """A stall that ends before the link is given up: the key arrives on a link that stands."""
    paused(box)
    with place.terminal("attach", "ssh://box", "--as", "me") as screen:
        screen.until("step 2 pending")
        box.network.freeze()
        screen.press("s")
        screen.until("no answer from the daemon")
        box.network.thaw()
        screen.until(lambda picture: "LINK LOST" not in picture and "PAUSED" in picture)
        wait_for(lambda: len(status(box)["viewers"]) == 1)
        screen.press("m")
        screen.until("NOTE")
        screen.press("it came after", "enter")
        screen.until("me: note it came after")  # so what was sent before has come, too
        assert step(box) == 2
        screen.press("q")
        screen.finish()


@pytest.mark.fault("W6")
def test_a_halted_ssh_is_no_way_for_keys_either(place: Place, box: Box) -> None:
    paused(box)
    with place.terminal("attach", "ssh://box") as screen:
        screen.until("step 2 pending")
        (ssh,) = ours(place)
        ssh.suspend()
        screen.press("s")
        screen.until("LINK LOST")
        screen.press("s")
        screen.until("not sent")
        ssh.resume()
        screen.until(lambda picture: "LINK LOST" not in picture and "PAUSED" in picture)
        assert step(box) == 2
        ssh.suspend()
        screen.press("q")
        screen.finish()
    nothing_left(place, box)


# The end ------------------------------------------------------------------------------------------


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


# What stands in the way ---------------------------------------------------------------------------


def strange_key(box: Box) -> None:
    (box.root / "authorized").write_text("")


def strange_host(box: Box) -> None:
    other = (box.root / "person.pub").read_text().split()
    (box.root / "known").write_text(f"box {other[0]} {other[1]}\n")


def nothing_installed(box: Box) -> None:
    (box.bin / "llm-inspect").unlink()


def an_older_one(box: Box) -> None:
    box.has_llm_inspect('#!/bin/sh\necho \'{"name": "default", "version": "0.0.1"}\'\n')


def a_stranger(box: Box) -> None:
    box.has_llm_inspect("#!/bin/sh\necho usage: llm-inspect FILE >&2\nexit 2\n")


def no_daemon(box: Box) -> None:
    pass


def nobody_at_home(box: Box) -> None:
    box.network.close()


@pytest.mark.parametrize(
    ("wrong", "message", "hint"),
    [
        (strange_key, "cannot log in as box: ", "ssh box"),
        (strange_host, "cannot log in as box: Host key verification failed", "ssh box"),
        (nobody_at_home, "cannot reach box: ", "ssh box"),
        (nothing_installed, "there is no llm-inspect on box", '[remote."box"] command'),
        (an_older_one, "the llm-inspect 0.0.1 on box is too old", "Install the version"),
        (a_stranger, "the llm-inspect on box is too old", "Install the version"),
        (no_daemon, "no daemon named default is running on box", "llm-inspect daemon start"),
    ],
)
def test_what_stands_in_the_way_is_said(
    place: Place, box: Box, wrong: Callable[[Box], None], message: str, hint: str
) -> None:
    wrong(box)
    with place.terminal("attach", "ssh://box", columns=160) as screen:
        picture = screen.finish(4)
    assert message in picture
    assert hint in picture
    assert len([line for line in picture.splitlines() if line.strip()]) <= 2
    nothing_left(place, box)


def test_a_server_that_forwards_no_sockets(place: Place) -> None:
    with Box(place, "AllowStreamLocalForwarding no") as box:
        paused(box)
        with place.terminal("attach", "ssh://box", columns=160) as screen:
            picture = screen.finish(4)
        assert "the ssh server on box forwards no Unix sockets" in picture
        assert "AllowStreamLocalForwarding yes" in picture
        nothing_left(place, box)


def test_no_ssh_and_no_terminal(place: Place) -> None:
    place.env["PATH"] = str(place.root)
    with place.terminal("attach", "ssh://box") as screen:
        assert "there is no ssh here" in screen.finish(4)
    assert folders(place) == []
    assert "needs a terminal" in place.run("attach", "ssh://box", code=2).err
    assert folders(place) == []


def test_a_port_where_nobody_listens(place: Place, box: Box) -> None:
    with place.terminal("attach", f"ssh://me@box:{free_port()}", columns=160) as screen:
        picture = screen.finish(4)
    assert "cannot reach me@box: " in picture
    assert "Connection refused" in picture
    nothing_left(place, box)


def test_a_host_is_never_an_option(place: Place, box: Box) -> None:
    mark = place.root / "touched"
    for where in (f"ssh://-oProxyCommand=touch {mark}", f"ssh://box/$(touch {mark})"):
        with place.terminal("attach", where) as screen:
            screen.finish(2)
    assert not mark.exists()


def test_it_is_found_where_config_toml_says(place: Place, box: Box) -> None:
    paused(box)
    nothing_installed(box)
    box.install(box.root / "an odd place" / "llm-inspect")
    config = place.root / "config" / "llm-inspect"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(
        "[remote.box]\ncommand = \"'~/an odd place/llm-inspect'\"\n", "utf-8"
    )
    with place.terminal("attach", "ssh://box") as screen:
        screen.until("step 2 pending")
        screen.press("q")
        screen.finish()
    nothing_left(place, box)


def test_a_runtime_directory_too_deep_for_ssh(place: Place, box: Box) -> None:
    place.env["LLM_INSPECT_RUNTIME_DIR"] = str(place.root / ("d" * 68))
    with place.terminal("attach", "ssh://box", columns=160) as screen:
        picture = screen.finish(4)
    assert "ssh cannot have its sockets in" in picture
    assert "LLM_INSPECT_RUNTIME_DIR" in picture


def test_in_tmux(place: Place, box: Box) -> None:
    """As people do it: a multiplexer, its keys, and a window that is closed."""
    tmux = shutil.which("tmux")
    if tmux is None:
        if os.environ.get("CI"):
            pytest.fail("no tmux: .ci/run installs it")
        pytest.skip("needs tmux")
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
    from tests.end_to_end.command import COMMAND

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
