"""Commands that may not act: another epoch, an old lease, sent again, out of order. W2, S6."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from engine_daemon.errors import InspectError
from engine_daemon.hub.lease import FREE_FOR_ALL
from engine_daemon.protocol import commands as cmd
from tests.daemons import Daemon, Watch, attached, running_daemon, watching
from tests.hub.test_lease import EXAMPLES, lease_of
from tests.hub.test_wire import RawViewer

SLOW = "scripted:rate=200,context=100000"
HELLO = cmd.Hello(min=1, max=1, caps=[], client="raw", who="me")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon(SLOW) as started:
        yield started


def order(watch: Watch, do: cmd.AnyCommand, **fields: object) -> cmd.Cmd:
    """A command as a client makes it, with other fields where they are given."""
    usual: dict[str, object] = {
        "cmd": os.urandom(16),
        "epoch": watch.client.welcome.ep,
        "session": watch.session,
        "lease_no": lease_of(watch)[0],
        "at": watch.at(),
    }
    return cmd.Cmd(do=do, **{**usual, **fields})  # type: ignore[arg-type]


async def answer(watch: Watch, message: cmd.Cmd) -> cmd.Reply:
    return await watch.client._request(message, cmd.Reply, watch.session, 60.0)


@asynccontextmanager
async def at_step_1(daemon: Daemon) -> AsyncIterator[Watch]:
    async with watching(daemon.paths) as watch:
        await watch.standing(0)
        await watch.run_to(1)
        await watch.standing(1)
        await watch.until(lambda _: lease_of(watch)[0] > 0)
        yield watch


HALTING = (cmd.StopDaemon, cmd.KillEngine)
EVERY = [kind for kind in cmd.AnyCommand.__args__ if kind not in HALTING]


def example(kind: Callable[[], cmd.AnyCommand]) -> cmd.AnyCommand:
    return EXAMPLES.get(kind) or kind()


@pytest.mark.fault("W2")
async def test_every_command_of_another_epoch_is_stale(daemon: Daemon) -> None:
    async with at_step_1(daemon) as watch:
        head = watch.columns.next
        for kind in (*EVERY, *HALTING):
            reply = await answer(watch, order(watch, example(kind), epoch=b"12345678"))
            assert (reply.status, reply.code) == ("rejected", "stale"), kind
        await _nothing_happened(watch, head)


@pytest.mark.fault("W2", "S6")
async def test_every_command_under_an_old_lease_is_stale(daemon: Daemon) -> None:
    """Somebody took the lease and gave it back: the old number is of no use any more."""
    async with at_step_1(daemon) as watch, attached(daemon.paths, watch.session) as other:
        old = lease_of(watch)[0]
        await other.client.lease("take", watch.session)
        await other.client.lease("release", watch.session)
        await watch.until(lambda c: c.next >= 1 and lease_of(watch)[1] is None)
        head = (await watch.until(lambda c: c.next > 0)).next
        outside = (cmd.Open, cmd.Reopen, cmd.Release, cmd.CheckWeights)  # of no session's lease
        for kind in EVERY:
            if kind in (*FREE_FOR_ALL, *outside):
                continue
            reply = await answer(watch, order(watch, example(kind), lease_no=old))
            assert (reply.status, reply.code) == ("rejected", "stale"), kind
        await _nothing_happened(watch, head)


@pytest.mark.fault("S6", "W2")
async def test_who_was_away_past_its_time_commands_nothing(daemon: Daemon) -> None:
    """A controller that says nothing for as long as a lease lasts; another one has it when the old
    one speaks again."""
    async with watching(daemon.paths) as watch:
        await watch.standing(0)
        await watch.client.lease("release", watch.session)
        away = RawViewer(daemon)
        try:
            away.send(msgspec.structs.replace(HELLO, who="away@box"))
            away.until("welcome")
            away.send(cmd.Lease(cmd=os.urandom(16), session=watch.session, do="acquire"))
            reply = away.until("reply")
            assert isinstance(reply, cmd.Reply)
            await watch.until(lambda _: lease_of(watch) == (reply.lease_no, "away@box"))
            await watch.until(lambda _: lease_of(watch)[1] is None)
            await watch.run_to(1)
            await watch.standing(1)
            away.send(order(watch, cmd.RunTo(step=2), lease_no=reply.lease_no))
            refused = away.until("reply")
            assert isinstance(refused, cmd.Reply)
            assert (refused.status, refused.code) == ("rejected", "stale")
            await watch.run_to(2)
            assert len(await watch.standing(2)) == 2
        finally:
            away.close()


async def _nothing_happened(watch: Watch, head: int) -> None:
    """No event but the commands that ask for it now."""
    reply = await answer(watch, order(watch, cmd.RunTo(step=2), lease_no=0))
    if reply.code == "no_lease":
        reply = await answer(watch, order(watch, cmd.RunTo(step=2)))
    assert reply.status == "accepted"
    columns = await watch.standing(2)
    assert len(columns) == 2
    with_take = [e for e in watch.events if e[0] >= head]
    assert len(with_take) <= 5


@pytest.mark.fault("W2")
async def test_a_command_sent_100_times_acts_once(daemon: Daemon) -> None:
    async with at_step_1(daemon) as watch:
        message = order(watch, cmd.RunTo(step=2))
        first = await answer(watch, message)
        await watch.standing(2)
        replies = [await _slowly(watch, message) for _ in range(99)]
        assert {(r.status, r.cmd) for r in (first, *replies)} == {("accepted", message.cmd)}
        await watch.run_to(3)
        columns = await watch.standing(3)
        assert len(columns) == 3


async def _slowly(watch: Watch, message: cmd.Cmd) -> cmd.Reply:
    while True:
        try:
            return await answer(watch, message)
        except InspectError as error:
            if error.code != "slow_down":
                raise
            await asyncio.sleep(0.1)


@pytest.mark.fault("W2")
async def test_commands_out_of_order_act_where_they_were_meant(daemon: Daemon) -> None:
    """The second of two steps comes first: it is refused, and the place it finds is told."""
    async with at_step_1(daemon) as watch:
        second = order(watch, cmd.RunTo(step=3), at=cmd.At(branch=0, step=2))
        first = order(watch, cmd.RunTo(step=2))
        reply = await answer(watch, second)
        assert (reply.code, reply.at) == ("stale", cmd.At(branch=0, step=1))
        assert (await answer(watch, first)).status == "accepted"
        await watch.standing(2)
        # Its number was used up: sent again, it is refused again, though it would fit now.
        assert (await answer(watch, second)).code == "stale"
        assert (await answer(watch, first)).status == "accepted"
        await watch.run_to(3)
        assert len(await watch.standing(3)) == 3
