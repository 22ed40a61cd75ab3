"""Who may command a session: the rules on a clock of their own, then a real hub."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from engine_daemon.client import DaemonClient
from engine_daemon.errors import Exit, InspectError
from engine_daemon.hub.lease import TTL_S, Leases
from engine_daemon.hub.refusing import Rejected
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.values import PromptSpec, Sampler
from tests.daemons import Daemon, Watch, running_daemon, watching

SLOW = "scripted:rate=200,context=5000"
ONE, TWO = b"1" * 16, b"2" * 16


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon(SLOW) as started:
        yield started


def leases() -> Leases:
    return Leases(lambda: None)


def refused(ours: Leases, viewer: bytes, no: int) -> str:
    with pytest.raises(Rejected) as caught:
        ours.check("S", viewer, no)
    return caught.value.code


def test_a_free_lease_is_had_by_whoever_comes_first() -> None:
    ours = leases()
    assert ours.of("S") == (0, None)
    ours.check("S", ONE, 0)
    assert ours.grant("S", ONE, "one", now=0.0) == 1
    assert ours.of("S") == (1, "one")
    assert ours.held_by(ONE) == ["S"]
    assert refused(ours, TWO, 0) == "no_lease"
    assert ours.grant("S", ONE, "one", now=1.0) == 1


@pytest.mark.fault("S6")
def test_an_old_number_never_acts() -> None:
    ours = leases()
    ours.grant("S", ONE, "one", now=0.0)
    number, lost = ours.take("S", TWO, "two", now=1.0)
    assert number == 2
    assert lost is not None
    assert (lost.viewer, lost.no) == (ONE, 1)
    assert refused(ours, ONE, 1) == "stale"
    ours.take("S", ONE, "one", now=2.0)
    assert refused(ours, ONE, 1) == "stale"
    ours.check("S", ONE, 3)
    with pytest.raises(Rejected):
        ours.renew("S", ONE, 1, now=3.0)


def test_the_number_in_force_is_of_no_use_to_another() -> None:
    ours = leases()
    number = ours.grant("S", ONE, "one", now=0.0)
    assert refused(ours, TWO, number) == "stale"


@pytest.mark.fault("S6")
def test_without_a_ping_it_is_free_after_its_time() -> None:
    ours = leases()
    ours.grant("S", ONE, "one", now=0.0)
    clock = 0.0
    while clock < TTL_S - 0.5:
        ours.expire(clock)
        clock += 0.5
    assert ours.of("S") == (1, "one")
    ours.heard(ONE, clock)
    for _ in range(10):
        ours.expire(clock)
        clock += 0.5
    assert ours.of("S") == (1, "one")
    for _ in range(int(TTL_S / 0.5) + 1):
        ours.expire(clock)
        clock += 0.5
    assert ours.of("S") == (1, None)
    ours.check("S", TWO, 0)
    assert ours.grant("S", TWO, "two", clock) == 2
    assert refused(ours, ONE, 1) == "stale"


@pytest.mark.fault("C1")
def test_a_hub_that_stalled_takes_no_lease_away() -> None:
    ours = leases()
    ours.expire(0.0)
    ours.grant("S", ONE, "one", now=0.0)
    ours.expire(60.0)
    assert ours.of("S") == (1, "one")


def test_only_the_holder_gives_it_back() -> None:
    ours = leases()
    ours.grant("S", ONE, "one", now=0.0)
    ours.release("S", TWO, 0)
    ours.release("S", ONE, 7)
    assert ours.of("S") == (1, "one")
    ours.release("S", ONE, 1)
    assert ours.of("S") == (1, None)


# A real hub ---------------------------------------------------------------------------------------


@asynccontextmanager
async def second(
    daemon: Daemon, session: str, *, observe: bool = False, reconnect: bool = True
) -> AsyncIterator[Watch]:
    """Somebody else who follows the session."""
    async with DaemonClient(
        daemon.paths, who="second@box", client="test", observe=observe, reconnect=reconnect
    ) as client:
        watch = Watch(client, session)
        try:
            yield watch
        finally:
            await watch.close()


def lease_of(watch: Watch) -> tuple[int, str | None]:
    """Number and holder as this client's latest state has them; the state comes a bit later."""
    for found in watch.client.state.sessions:
        if found.session == watch.session:
            return found.lease_no, found.holder
    return 0, None


def holder(watch: Watch) -> str | None:
    return lease_of(watch)[1]


async def no(watch: Watch, do: cmd.AnyCommand) -> str:
    with pytest.raises(InspectError) as caught:
        await watch.client.command(do, watch.session, watch.at())
    assert caught.value.exit_code == Exit.DAEMON
    return caught.value.code


def commands(watch: Watch) -> list[tuple[str, str]]:
    found = [unpack_event(packed) for _, packed in watch.events]
    return [(event.op, event.who) for event in found if isinstance(event, ev.Commanded)]


async def test_opening_gives_the_lease_and_others_are_told_whose_it_is(daemon: Daemon) -> None:
    async with watching(daemon.paths) as first, second(daemon, first.session) as other:
        await first.standing(0)
        await other.standing(0)
        await other.until(lambda _: holder(other) is not None)
        assert first.client.holds(first.session)
        assert not other.client.holds(first.session)
        for do in (
            cmd.RunTo(step=1),
            cmd.Force(id=3),
            cmd.ForceText(ids=[3]),
            cmd.SetSampler(sampler=Sampler()),
            cmd.Resample(),
            cmd.Switch(branch=0),
            cmd.Recompute(step=0),
            cmd.MeasureNaive(),
            cmd.RemoveCondition(number=1),
            cmd.SetWatch(texts=[]),
            cmd.Close(),
        ):
            assert await no(other, do) == "no_lease"
        assert commands(other) == [("open", holder(other))]
        await first.run_to(1)
        await first.standing(1)


async def test_pause_and_conditions_need_no_lease(daemon: Daemon) -> None:
    async with watching(daemon.paths) as first, second(daemon, first.session) as other:
        await first.standing(0)
        await first.run_to(None)
        await other.until(lambda c: len(c) >= 2)
        await other.client.command(cmd.AddCondition(source="step=4000"), first.session)
        await other.client.command(cmd.Pause(), first.session)
        await first.until(lambda _: ("pause", "second@box") in commands(first))
        await first.until(lambda c: c.status == "paused")
        assert holder(first) != "second@box"


async def test_notes_need_no_lease_and_stay_where_they_were_written(daemon: Daemon) -> None:
    async with watching(daemon.paths) as first, second(daemon, first.session) as other:
        await first.standing(0)
        await first.run_to(4)
        await first.standing(4)
        await other.standing(4)
        await first.client.command(cmd.Force(id=9, step=2), first.session, first.at())
        await first.until(lambda c: c.branch == 1 and c.status == "paused" and len(c) == 3)
        await other.until(lambda c: c.branch == 1 and c.status == "paused" and len(c) == 3)
        for text, step, branch in (
            ("of the first", 3, 0),
            ("shared, seen from the second", 1, 1),
            ("  pending  ", None, None),
        ):
            note = cmd.Note(text=text, step=step, branch=branch)
            await other.client.command(note, first.session)
        columns = await first.until(lambda c: len(c.notes) == 3)
        assert [(n.who, n.text, n.branch, n.step) for n in columns.notes] == [
            ("second@box", "of the first", 0, 3),
            ("second@box", "shared, seen from the second", 0, 1),
            ("second@box", "pending", 1, 3),
        ]
        for wrong in (
            cmd.Note(text=" \n"),
            cmd.Note(text="x" * 501),
            cmd.Note(text="x", step=99),
            cmd.Note(text="x", branch=7),
        ):
            with pytest.raises(InspectError) as caught:
                await other.client.command(wrong, first.session)
            assert caught.value.code == "bad_arg"


async def test_a_lease_is_taken_and_the_old_holder_is_told(daemon: Daemon) -> None:
    async with watching(daemon.paths) as first, second(daemon, first.session) as other:
        await first.standing(0)
        await other.standing(0)
        await other.client.lease("take", first.session)
        await first.until(lambda _: holder(first) == "second@box")
        await first.until(lambda c: ("take", "second@box") in commands(first))
        assert not first.client.holds(first.session)
        assert await no(first, cmd.RunTo(step=1)) == "no_lease"
        await other.run_to(1)
        await first.standing(1)
        await other.client.lease("release", first.session)
        await first.run_to(2)
        await first.until(lambda _: first.client.holds(first.session))
        await first.until(lambda _: lease_of(first)[0] == 3)


@pytest.mark.fault("W2", "S6")
async def test_a_command_under_a_lost_lease_is_stale(daemon: Daemon) -> None:
    async with watching(daemon.paths) as first, second(daemon, first.session) as other:
        await first.standing(0)
        await first.until(lambda _: lease_of(first)[0] == 1)
        message = cmd.Cmd(
            cmd=os.urandom(16),
            epoch=first.client.welcome.ep,
            do=cmd.RunTo(step=1),
            session=first.session,
            lease_no=lease_of(first)[0],
            at=first.at(),
        )
        await other.client.lease("take", first.session)
        await other.client.lease("release", first.session)
        reply = await first.client._request(message, cmd.Reply, first.session, 5.0)
        assert (reply.status, reply.code) == ("rejected", "stale")
        assert len(first.columns) == 0


@pytest.mark.fault("W2")
async def test_taking_twice_with_one_id_takes_once(daemon: Daemon) -> None:
    async with watching(daemon.paths) as first, second(daemon, first.session) as other:
        await first.standing(0)
        message = cmd.Lease(cmd=os.urandom(16), session=first.session, do="take")
        replies = [
            await other.client._request(message, cmd.Reply, first.session, 5.0) for _ in range(20)
        ]
        assert {reply.lease_no for reply in replies} == {2}
        await first.until(lambda _: lease_of(first)[0] == 2)
        await first.until(lambda _: commands(first).count(("take", "second@box")) == 1)


async def test_a_step_on_a_free_lease_takes_it_and_leaving_gives_it_back(daemon: Daemon) -> None:
    async with watching(daemon.paths) as first:
        await first.standing(0)
        await first.client.lease("release", first.session)
        async with second(daemon, first.session) as other:
            await other.standing(0)
            await other.run_to(1)
            await first.standing(1)
            await first.until(lambda _: holder(first) == "second@box")
        await first.until(lambda _: holder(first) is None)
        await first.run_to(2)
        await first.standing(2)


async def test_a_refused_command_takes_no_lease(daemon: Daemon) -> None:
    async with watching(daemon.paths) as first:
        await first.standing(0)
        await first.client.lease("release", first.session)
        with pytest.raises(InspectError):
            await first.client.command(cmd.RunTo(step=9), first.session, cmd.At(branch=0, step=8))
        assert not first.client.holds(first.session)


@pytest.mark.fault("W2", "S5")
async def test_observers_change_nothing(daemon: Daemon) -> None:
    async with watching(daemon.paths) as first:
        await first.standing(0)
        await first.run_to(1)
        await first.standing(1)
        head = len(first.events)
        async with second(daemon, first.session, observe=True) as observer:
            await observer.standing(1)
            for do in cmd.AnyCommand.__args__:
                sample = EXAMPLES.get(do) or do()
                assert await no(observer, sample) == "observer"
            for word in ("acquire", "renew", "release", "take"):
                with pytest.raises(InspectError, match="only watch"):
                    await observer.client.lease(word, first.session)
            # A frame of the controller, replayed as it was.
            replayed = cmd.Cmd(
                cmd=unpack_cause(first, "run_to"),
                epoch=first.client.welcome.ep,
                do=cmd.RunTo(step=1),
                session=first.session,
                lease_no=lease_of(first)[0],
                at=cmd.At(branch=0, step=0),
            )
            reply = await observer.client._request(replayed, cmd.Reply, first.session, 5.0)
            assert (reply.status, reply.code) == ("rejected", "observer")
            names = {v.who: v.role for v in observer.client.state.viewers}
            assert names["second@box"] == "observer"
        await first.run_to(2)
        await first.standing(2)
        assert [type(unpack_event(p)).__name__ for _, p in first.events[head:]] == [
            "Commanded",
            "Stepped",
            "Predicted",
            "Stopped",
        ]


EXAMPLES: dict[object, cmd.AnyCommand] = {
    cmd.Open: cmd.Open(prompt=PromptSpec(text=b"Hello")),
    cmd.RunTo: cmd.RunTo(step=2),
    cmd.Force: cmd.Force(id=3),
    cmd.ForceText: cmd.ForceText(ids=[3]),
    cmd.SetSampler: cmd.SetSampler(sampler=Sampler()),
    cmd.Switch: cmd.Switch(branch=0),
    cmd.Recompute: cmd.Recompute(step=0),
    cmd.AddCondition: cmd.AddCondition(source="step=3"),
    cmd.RemoveCondition: cmd.RemoveCondition(number=1),
    cmd.SetWatch: cmd.SetWatch(texts=[]),
    cmd.Note: cmd.Note(text="a note"),
    cmd.Reopen: cmd.Reopen(session="AAAAAAAA"),
    cmd.Release: cmd.Release(session="AAAAAAAA"),
    cmd.Rename: cmd.Rename(title="a title"),
}


def unpack_cause(watch: Watch, op: str) -> bytes:
    for _, packed in watch.events:
        event = unpack_event(packed)
        if isinstance(event, ev.Commanded) and event.op == op:
            assert event.cause is not None
            return event.cause
    raise AssertionError(op)


async def test_who_comes_back_after_a_lost_link_still_has_the_lease(daemon: Daemon) -> None:
    async with watching(daemon.paths) as first, second(daemon, first.session) as other:
        await first.standing(0)
        await other.standing(0)
        before = first.client.welcome.viewer
        link = first.client._link
        assert link is not None
        link.fail("cut by the test")
        await first.until(lambda _: first.client._link not in (None, link))
        assert first.client.welcome.viewer == before
        await first.run_to(1)
        await other.standing(1)
        await first.until(lambda _: lease_of(first)[0] == 1)
        assert await no(other, cmd.RunTo(step=2)) == "no_lease"
