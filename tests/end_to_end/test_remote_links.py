"""The link of `attach ssh://…` is cut, killed, stalled: it comes back, and no key acts late."""

import asyncio
import time
from collections.abc import Callable

import pytest

from engine_daemon.client import DaemonClient, LinkLost, LinkUp
from engine_daemon.paths import paths_for
from engine_daemon.protocol.commands import At, Batch, RunTo
from engine_daemon.remote.address import Remote
from engine_daemon.remote.tunnel import Tunnel
from tests.daemons import PATIENCE_S, wait_for
from tests.end_to_end.command import Place
from tests.end_to_end.far import box as box
from tests.end_to_end.far import kill, near, nothing_left, paused, status, step
from tests.end_to_end.sshd import Box, ours

pytestmark = pytest.mark.terminal


def test_a_dropped_link_comes_back_by_itself(place: Place, box: Box) -> None:
    paused(box)
    with place.terminal("attach", "ssh://box") as screen:
        screen.until("step 2 pending")

        def end_ssh() -> None:
            kill(ours(place))

        for cut in (box.network.cut, end_ssh, lambda: kill(box.logins())):
            before = step(box)
            box.network.heal()
            cut()
            screen.until("LINK LOST")
            if cut == end_ssh:
                screen.until("the ssh link to box ended")
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
@pytest.mark.parametrize("frozen_s", [0, pytest.param(30, marks=pytest.mark.soak)])
def test_keys_over_a_stalled_link_never_act(
    frozen_s: int, place: Place, box: Box, record_property: Callable[[str, object], None]
) -> None:
    """Everything that was sent arrives once the link moves again; nothing of it is done. In the
    long form it stands for half a minute, and keys are pressed all along."""
    paused(box)
    with place.terminal("attach", "ssh://box", "--as", "me") as screen:
        screen.until("step 2 pending")
        assert "box" in screen.text().splitlines()[0]
        box.network.freeze()
        began = time.monotonic()
        screen.press("s")  # before anybody can know
        screen.until("LINK LOST  the ssh link to box stalled")
        pressed = 4
        screen.press("s", "s", "space")
        screen.until("not sent")
        while time.monotonic() < began + frozen_s:
            time.sleep(0.5)
            screen.press("s")
            pressed += 1
        frozen = time.monotonic() - began
        screen.until(lambda picture: "LINK LOST" in picture and "not sent" in picture)
        box.network.thaw()
        screen.until(lambda picture: "LINK LOST" not in picture and "PAUSED" in picture)
        assert step(box) == 2
        screen.press("s")
        screen.until("step 3 pending")
        assert step(box) == 3
        screen.press("q")
        screen.finish()
    nothing_left(place, box)
    record_property("figure", f"{frozen:.0f} s frozen: none of {pressed} keys acted")


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
        screen.until("LINK LOST  the ssh link to box stalled: ssh is halted here")
        screen.press("s")
        screen.until("not sent")
        ssh.resume()
        screen.until(lambda picture: "LINK LOST" not in picture and "PAUSED" in picture)
        assert step(box) == 2
        ssh.suspend()
        screen.press("q")
        screen.finish()
    nothing_left(place, box)
