"""Who is attached, who has the lease, and who follows what, as the state tells it."""

import asyncio
import time

import psutil

from engine_daemon.client import DaemonClient
from engine_daemon.hub.hub import GROWTH_PERIOD_S
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.commands import StateMessage
from tests.daemons import PATIENCE_S, Daemon, Watch, running_daemon, wait_for, watching
from tests.hub.test_lease import SLOW, second
from tests.hub.test_wire import RawViewer


async def test_presence_says_who_holds_and_who_follows_what() -> None:
    with running_daemon(SLOW) as daemon:
        await look_at_presence(daemon)


async def look_at_presence(daemon: Daemon) -> None:
    async with watching(daemon.paths) as first, second(daemon, first.session) as other:
        await other.standing(0)
        await other.until(lambda _: len(other.client.state.viewers) == 2)
        await other.until(lambda _: any(v.holds for v in other.client.state.viewers))
        people = {v.who: v for v in other.client.state.viewers}
        mine = people["second@box"]
        assert (mine.holds, mine.role, mine.uid) == ([], "controller", None)
        (holder,) = (v for v in people.values() if v.holds)
        assert holder.holds == [first.session]
        await other.until(
            lambda _: all(v.sessions == [first.session] for v in other.client.state.viewers)
        )
        other.client.unfollow(first.session)
        await first.until(lambda _: [] in [v.sessions for v in first.client.state.viewers])
        other.client.follow(first.session, other.columns.next)
        await first.until(
            lambda _: all(v.sessions == [first.session] for v in first.client.state.viewers)
        )
        await first.client.command(cmd.Close(), first.session)  # they look at it still
        await other.until(lambda _: other.client.state.sessions == [])
        people = {v.who: v for v in other.client.state.viewers}
        assert [(v.sessions, v.holds) for v in people.values()] == [([first.session], [])] * 2


async def test_a_running_session_changes_the_state_once_a_second() -> None:
    """Ten times a second, to twenty viewers, it costs the hub as much as the events do."""
    with running_daemon("scripted:rate=200") as daemon:
        async with watching(daemon.paths) as watch, DaemonClient(daemon.paths) as client:
            await watch.standing(0)
            run = cmd.RunTo(step=None)
            await watch.client.command(run, watch.session, cmd.At(branch=0, step=0))
            running, told = False, []
            async with asyncio.timeout(PATIENCE_S):
                async for updates in client.updates():
                    told += [u.state.sessions[0] for u in updates if isinstance(u, StateMessage)]
                    if told and not running and told[-1].status == "running":
                        running, told, begun = True, [], time.monotonic()
                    if len(told) == 3:
                        break
            assert time.monotonic() - begun > 2 * GROWTH_PERIOD_S
            assert told[0].head < told[1].head < told[2].head
            await watch.client.command(cmd.Pause(), watch.session)
            await watch.until(lambda _: watch.client.state.sessions[0].status == "paused")


async def test_who_looks_at_a_recording_that_is_removed_is_told() -> None:
    with running_daemon(SLOW) as daemon:
        await remove_what_is_looked_at(daemon)


class Told(Watch):
    """Takes down which recordings it is told are removed."""

    def __init__(self, client: DaemonClient, session: str) -> None:
        self.removed: list[cmd.Removed] = []
        super().__init__(client, session)

    def _took(self, update: object) -> None:
        if isinstance(update, cmd.Removed):
            self.removed.append(update)


async def remove_what_is_looked_at(daemon: Daemon) -> None:
    async with (
        watching(daemon.paths) as first,
        DaemonClient(daemon.paths, who="second@box", client="test") as client,
    ):
        other = Told(client, first.session)
        await first.standing(0)
        await other.standing(0)
        await first.client.command(cmd.Close(), first.session)
        await other.until(lambda _: client.state.sessions == [])
        for removed in (False, True):
            release = cmd.Release(session=first.session, removed=removed)
            await first.client.command(release, first.session)
        await other.until(lambda _: bool(other.removed))
        assert [(one.session, one.by) for one in other.removed] == [
            (first.session, first.client.state.viewers[0].who)
        ]
        await first.until(lambda _: [v.sessions for v in first.client.state.viewers] == [[], []])
        await other.close()


async def test_a_recording_is_removed_just_as_those_who_looked_at_it_leave() -> None:
    """Found by use: the hub learns that they are gone when it tells them, in the middle of the
    list of viewers; it died of it."""
    with running_daemon(SLOW) as daemon:
        hub = psutil.Process(daemon.pid)
        async with watching(daemon.paths) as watch:
            await watch.standing(0)
            await watch.client.command(cmd.Close(), watch.session)
            await watch.until(lambda _: watch.client.state.sessions == [])
            fds = hub.num_fds()
            leaving = [RawViewer(daemon) for _ in range(3)]
            for viewer in leaving:
                viewer.send(cmd.Hello(min=1, max=1, caps=[], client="raw", who="leaving"))
                viewer.until("welcome")
                viewer.send(cmd.Sub(session=watch.session, start=0, win_bytes=1 << 20))
                viewer.until("batch")
            await watch.until(lambda _: len(watch.client.state.viewers) == 4)
            for viewer in leaving:
                viewer.close()
            wait_for(lambda: hub.num_fds() <= fds)
            release = cmd.Release(session=watch.session, removed=True)
            await watch.client.command(release, watch.session)
            await watch.until(lambda _: len(watch.client.state.viewers) == 1)
            assert watch.client.connected
