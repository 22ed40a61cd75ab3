"""Who is attached, who has the lease, and who follows what, as the state tells it."""

from tests.daemons import Daemon, running_daemon, watching
from tests.hub.test_lease import SLOW, second


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
