"""A command that was under way for long is not obeyed, whatever held it up."""

import os
from typing import Any

import msgspec
import pytest

from engine_daemon import link
from engine_daemon.client import DaemonClient
from engine_daemon.errors import InspectError
from engine_daemon.hub.orders import LATE_S
from engine_daemon.protocol import codec
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.values import PromptSpec
from tests.daemons import running_daemon, watching

BEFORE_NS = int((LATE_S + 1) * 1e9)


def held_up(patch: pytest.MonkeyPatch) -> None:
    """What viewers send from here on has been under way for longer than it may."""

    def sealed(message: cmd.Message, **header: Any) -> list[bytes]:
        if isinstance(message, cmd.Cmd | cmd.Lease):
            message = msgspec.structs.replace(message, t_ns=message.t_ns - BEFORE_NS)
        return codec.seal(message, **header)

    patch.setattr(link, "seal", sealed)


@pytest.mark.fault("W6")
async def test_commands_without_a_session_that_come_late_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running_daemon() as daemon:
        held_up(monkeypatch)
        async with DaemonClient(daemon.paths) as client:
            for do in (cmd.Open(prompt=PromptSpec(text=b"Hi")), cmd.StopDaemon()):
                with pytest.raises(InspectError) as raised:
                    await client.command(do)
                assert (raised.value.code, raised.value.exit_code) == ("late", 4)
                assert "not done: it was under way for 5 s" in raised.value.message
            assert client.state.sessions == []


@pytest.mark.fault("W6")
async def test_every_command_of_a_session_and_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_daemon() as daemon:
        async with watching(daemon.paths) as watch:
            await watch.standing(0)
            before = list(watch.events)
            with monkeypatch.context() as patched:
                held_up(patched)
                for do in (cmd.RunTo(step=1), cmd.Pause(), cmd.Note(text="x"), cmd.Force(id=1)):
                    with pytest.raises(InspectError, match="under way"):
                        await watch.client.command(do, watch.session, watch.at())
                with pytest.raises(InspectError, match="under way"):
                    await watch.client.lease("take", watch.session)
            await watch.client.command(cmd.Note(text="in time"), watch.session)
            await watch.until(lambda c: len(c.notes) == 1)
            assert watch.events[: len(before)] == before
            assert len(watch.events) == len(before) + 1
            assert watch.client.holds(watch.session)
            await watch.run_to(1)
            await watch.standing(1)


async def test_a_viewer_that_tells_no_time_is_obeyed() -> None:
    """An older one: additive on the wire."""
    with running_daemon() as daemon:
        async with watching(daemon.paths) as watch:
            await watch.standing(0)
            assert watch.client._link is not None
            message = cmd.Cmd(
                cmd=os.urandom(16),
                epoch=watch.client.welcome.ep,
                do=cmd.RunTo(step=1),
                session=watch.session,
                lease_no=watch.client._leases[watch.session],
                at=watch.at(),
            )
            await watch.client._link.request(message, 60.0, watch.session)
            await watch.standing(1)
