"""The client's own checks, and refusals of the daemon."""

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from engine_daemon import client as client_module
from engine_daemon.client import DaemonClient, LinkLost
from engine_daemon.errors import InspectError
from engine_daemon.link import FORGOTTEN, Link, check_message
from engine_daemon.paths import paths_for
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.reads import AskStacks
from engine_daemon.protocol.values import PromptSpec
from tests.daemons import PATIENCE_S, directories, running_daemon


@pytest.mark.parametrize(
    "do",
    [cmd.RunTo(step=2**70), cmd.Force(id="x"), cmd.Force(id=-(2**70))],  # type: ignore[arg-type]
)
def test_what_the_wire_cannot_carry(do: cmd.AnyCommand) -> None:
    with pytest.raises(InspectError, match="cannot be asked") as raised:
        check_message(cmd.Cmd(cmd=b"", epoch=b"", do=do))
    assert raised.value.code == "bad_arg"


def test_a_session_that_is_no_text() -> None:
    with pytest.raises(InspectError, match="cannot be asked"):
        check_message(cmd.Ping(), "a\udcff")


async def test_a_refusal_fails_its_request_at_once() -> None:
    with running_daemon() as daemon:
        async with DaemonClient(daemon.paths) as client:
            with pytest.raises(InspectError) as raised:
                await client.command(cmd.RunTo(step=2**70), "K")
            assert raised.value.code == "bad_arg"
            assert client.connected
        link = Link(f"ipc://{daemon.paths.viewer_socket}", lambda message: None)
        try:
            await link.connected(3.0)
            with pytest.raises(InspectError) as raised:
                await link.request(cmd.AskRequest(ask=AskStacks()), 3.0)
            assert raised.value.code == "no_hello"
            assert await link.lost(10.0, 10.0) == FORGOTTEN
        finally:
            link.close()


async def test_a_name_that_is_no_text() -> None:
    with running_daemon() as daemon, pytest.raises(InspectError, match="cannot be asked"):
        async with DaemonClient(daemon.paths, who="a\udcff"):
            pass


async def test_nobody_there() -> None:
    with directories(), pytest.raises(InspectError, match="no daemon"):
        async with DaemonClient(paths_for("default")):
            pass


async def test_a_halted_daemon_does_not_answer_and_is_not_said_to_be_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "PING_S", 0.2)
    with running_daemon() as daemon:
        async with DaemonClient(daemon.paths, reconnect=False) as client:
            os.kill(daemon.pid, signal.SIGSTOP)
            try:
                with pytest.raises(InspectError, match="is halted") as raised:
                    async for _ in client.updates():
                        pass
                assert raised.value.code == "no_answer"
                assert raised.value.exit_code == 4
                assert f"kill -CONT {daemon.pid} lets it go on" in raised.value.hint
                with pytest.raises(InspectError, match="is halted"):
                    async with DaemonClient(daemon.paths):
                        pass
            finally:
                os.kill(daemon.pid, signal.SIGCONT)


async def test_a_command_that_stood_still_goes_on_where_it_was() -> None:
    """The link is lost after seconds without a word; the daemon, and what is followed, are not."""
    with running_daemon("scripted:rate=200") as daemon:
        async with DaemonClient(daemon.paths, reconnect=False) as client:
            reply = await client.command(cmd.Open(prompt=PromptSpec(text=b"on"), run_to=None))
            assert reply.session is not None
            client.follow(reply.session)
            seen, losses = 0, 0
            async with asyncio.timeout(PATIENCE_S):
                async for updates in client.updates():
                    for update in updates:
                        if isinstance(update, cmd.Batch):
                            assert update.start == seen
                            seen = update.to
                        losses += isinstance(update, LinkLost)
                    if losses == 0 and seen > 20 and client._link is not None:
                        client._link.fail("the daemon is gone")  # what the heartbeat says
                    if losses and seen > 60:
                        break
            await client.command(cmd.Close(), reply.session)


@pytest.mark.parametrize("how", ["killed", "anew"])
async def test_a_command_whose_daemon_is_gone_says_so(how: str) -> None:
    with running_daemon() as daemon:
        async with DaemonClient(daemon.paths, reconnect=False) as client:
            daemon.kill()
            if how == "anew":
                daemon.start()
            words = "no daemon named" if how == "killed" else "started anew"
            with pytest.raises(InspectError, match=words) as raised:
                await asyncio.wait_for(_look_on(client), PATIENCE_S)
            assert raised.value.exit_code == 4


async def _look_on(client: DaemonClient) -> None:
    async for _ in client.updates():
        pass


async def _loss(client: DaemonClient) -> LinkLost:
    async for updates in client.updates():
        for update in updates:
            if isinstance(update, LinkLost):
                return update
    raise AssertionError("the link was never lost")


async def test_a_screen_whose_daemon_is_gone_is_told_what_brings_it_back() -> None:
    with running_daemon() as daemon:
        async with DaemonClient(daemon.paths) as client:
            daemon.kill()
            loss = await asyncio.wait_for(_loss(client), PATIENCE_S)
            assert loss.hint == "llm-inspect daemon start brings it back"


async def test_a_screen_whose_daemon_is_halted_is_told_what_lets_it_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "PING_S", 0.2)
    with running_daemon() as daemon:
        async with DaemonClient(daemon.paths) as client:
            os.kill(daemon.pid, signal.SIGSTOP)
            try:
                loss = await asyncio.wait_for(_loss(client), PATIENCE_S)
                assert f"kill -CONT {daemon.pid} lets it go on" in loss.hint
            finally:
                os.kill(daemon.pid, signal.SIGCONT)


async def test_what_is_not_confirmed_says_that_the_link_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "PING_S", 0.2)
    with running_daemon() as daemon:
        async with DaemonClient(daemon.paths) as client:
            os.kill(daemon.pid, signal.SIGSTOP)
            try:
                with pytest.raises(InspectError, match="not confirmed") as raised:
                    await client.command(cmd.Open(prompt=PromptSpec(text=b"on")))
                assert raised.value.code == "link_lost"
                assert "The link is tried again" in raised.value.hint
            finally:
                os.kill(daemon.pid, signal.SIGCONT)


async def test_a_halted_daemon_reached_by_its_socket_is_not_said_to_be_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "PING_S", 0.2)
    with running_daemon() as daemon:
        paths = replace(daemon.paths, endpoint=f"ipc://{daemon.paths.viewer_socket}")
        async with DaemonClient(paths, reconnect=False) as client:
            os.kill(daemon.pid, signal.SIGSTOP)
            try:
                with pytest.raises(InspectError, match="does not answer"):
                    await asyncio.wait_for(_look_on(client), PATIENCE_S)
            finally:
                os.kill(daemon.pid, signal.SIGCONT)
