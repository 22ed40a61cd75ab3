"""Sessions re-open from their logs: a hub killed after any event knows what it knew before."""

from pathlib import Path

import msgspec
import pytest

from engine_daemon.client import DaemonClient
from engine_daemon.errors import InspectError
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.values import PromptSpec, Sampler
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.format import frame
from tests.daemons import Daemon, attached, directories, running_daemon, watching

SLOW = "scripted:rate=200"


def facts(columns: Columns) -> dict[str, object]:
    """What a session is, as far as its log tells, apart from whether it was running."""
    return {
        "ids": columns.ids.tolist(),
        "prompt": columns.prompt,
        "sampler": columns.sampler,
        "place": columns.place,
        "pending": columns.pending,
        "pieces": [columns.piece(i) for i in range(len(columns))],
        "prob": columns.prob.tolist(),
        "limits": columns.limits,
    }


def folded(events: list[tuple[int, bytes]]) -> Columns:
    columns = Columns()
    columns.extend(events)
    return columns


async def _a_session_of_every_kind(daemon: Daemon) -> list[tuple[int, bytes]]:
    """Step, force, another sampler, run, pause, end by length."""
    async with watching(daemon.paths, max_steps=12) as watch:
        await watch.standing(0)
        await watch.run_to(1)
        await watch.standing(1)
        await watch.client.command(cmd.Force(id=65), watch.session, watch.at())
        await watch.standing(2)
        sampler = Sampler(greedy=False, temperature=0.8, seed=3)
        before = watch.columns.pending
        await watch.client.command(cmd.SetSampler(sampler=sampler), watch.session, watch.at())
        await watch.until(lambda c: c.pending is not None and c.pending is not before)
        await watch.run_to(None)
        await watch.until(lambda c: len(c) >= 4)
        await watch.client.command(cmd.Pause(), watch.session)
        stands = await watch.until(lambda c: c.status in ("paused", "ended"))
        if stands.status == "paused":  # else the steps that were left came first
            await watch.run_to(None)
        await watch.until(lambda c: c.status == "ended")
        return list(watch.events)


@pytest.mark.fault("D1")
async def test_a_hub_killed_after_each_event_knows_the_same_after_a_restart() -> None:
    """Every prefix of a log is what a kill -9 leaves; the daemon that finds it must agree."""
    with directories(), Daemon(SLOW) as daemon:
        events = await _a_session_of_every_kind(daemon)
        daemon.stop()
        seen = {type(unpack_event(packed)).__name__ for _, packed in events}
        assert seen >= {"Opened", "Commanded", "PromptSet", "Predicted", "Stepped", "Stopped"}
        recordings = daemon.paths.recordings
        for path in recordings.iterdir():
            path.unlink()
        ids = {
            count: _write_prefix(recordings, events, count) for count in range(1, len(events) + 1)
        }
        daemon.start()
        async with DaemonClient(daemon.paths) as client:
            known = {info.session for info in client.state.sessions}
            assert known == set(ids.values())
        for count, session in ids.items():
            async with attached(daemon.paths, session) as watch:
                before = folded(events[:count])
                after = await watch.until(lambda c, n=count: c.next > n)  # type: ignore[misc]
                if before.place.kind != "waiting":
                    assert facts(after) == facts(before), f"after event {count}"
                    assert after.status in ("paused", "ended")
                assert watch.events[1:count] == events[1:count]


def _write_prefix(recordings: Path, events: list[tuple[int, bytes]], count: int) -> str:
    """A log of the first `count` events under an id of its own."""
    session = f"{count:08d}"
    opened = unpack_event(events[0][1])
    assert isinstance(opened, ev.Opened)
    first = msgspec.msgpack.encode(msgspec.structs.replace(opened, session=session))
    frames = [frame(0, first), *(frame(seq, packed) for seq, packed in events[1:count])]
    (recordings / f"{session}.lir").write_bytes(b"".join(frames))
    return session


@pytest.mark.fault("D3")
async def test_kill_9_while_running_then_go_on_to_the_same_text() -> None:
    """The text after a kill and a restart is the text of an undisturbed run."""
    sampler = Sampler(greedy=False, temperature=1.0, seed=11)
    with running_daemon(SLOW) as daemon:
        async with watching(daemon.paths, sampler=sampler, run_to=40) as undisturbed:
            expected = (await undisturbed.standing(40)).ids.tolist()
        async with watching(daemon.paths, sampler=sampler, run_to=None) as watch:
            await watch.until(lambda c: len(c) >= 5)
            session, seen = watch.session, len(watch.events)
            daemon.kill()
            daemon.start()
            # The same viewer comes back by itself and misses nothing.
            columns = await watch.until(lambda c: c.status == "paused")
            assert [seq for seq, _ in watch.events] == list(range(len(watch.events)))
            assert len(watch.events) >= seen
            assert columns.stop is not None
            assert columns.stop.reason == "engine_lost"
            await watch.run_to(40)
            columns = await watch.standing(40)
            assert columns.ids.tolist() == expected
            assert session == watch.session
            restored = [
                event
                for _, packed in watch.events
                if isinstance(event := unpack_event(packed), ev.Predicted) and event.restored
            ]
            assert len(restored) == 1
            assert restored[0].restored is not None
            assert restored[0].restored.replayed == restored[0].position


async def test_a_cleanly_stopped_daemon_writes_closed_and_opens_the_session_again() -> None:
    with running_daemon(SLOW) as daemon:
        async with watching(daemon.paths) as watch:
            await watch.standing(0)
            session = watch.session
        daemon.stop()
        daemon.start()
        async with attached(daemon.paths, session) as again:
            await again.until(lambda c: c.status == "paused")
            kinds = [type(unpack_event(packed)).__name__ for _, packed in again.events]
            assert kinds[-2:] == ["Closed", "Reopened"]


async def test_a_session_that_a_user_closed_stays_closed() -> None:
    with running_daemon(SLOW) as daemon:
        async with watching(daemon.paths) as watch:
            await watch.standing(0)
            await watch.client.command(cmd.Close(), watch.session)
        daemon.kill()
        daemon.start()
        async with DaemonClient(daemon.paths) as client:
            assert client.state.sessions == []


async def test_a_torn_tail_is_cut_and_counted() -> None:
    with running_daemon(SLOW) as daemon:
        async with watching(daemon.paths) as watch:
            await watch.standing(0)
            session, count = watch.session, len(watch.events)
        daemon.kill()
        path = daemon.paths.recordings / f"{session}.lir"
        with path.open("ab") as file:
            file.write(frame(count, b"x" * 100)[:-7])
        daemon.start()
        async with attached(daemon.paths, session) as again:
            await again.until(lambda c: c.next > count)
            reopened = unpack_event(again.events[count][1])
            assert isinstance(reopened, ev.Reopened)
            assert reopened.lost_bytes > 0


async def test_a_session_opened_while_loading_survives_a_kill() -> None:
    """Killed before the prompt was tokenised: the next daemon tokenises it and stands at step 0."""
    with directories():
        daemon = Daemon("scripted:load_ms=600000").start(wait="hub")
        try:
            async with watching(daemon.paths, run_to=None) as watch:
                await watch.until(lambda c: c.sampler is not None and c.next >= 4)
                session = watch.session
            daemon.kill()
            quick = Daemon(SLOW)
            quick.start()
            async with attached(daemon.paths, session) as again:
                columns = await again.standing(0)
                assert columns.place.kind == "pending"
                assert len(columns) == 0
        finally:
            daemon.stop()


async def test_files_that_are_no_logs_are_left_alone() -> None:
    with directories():
        daemon = Daemon(SLOW)
        daemon.paths.recordings.mkdir(parents=True)
        odd = {
            "AAAAAAAA.lir": b"",
            "BBBBBBBB.lir": b"not a recording at all" * 100,
            "CCCCCCCC.lir": frame(0, b"\x81\xa1k\xa3New"),
        }
        for name, content in odd.items():
            (daemon.paths.recordings / name).write_bytes(content)
        with daemon:
            async with DaemonClient(daemon.paths) as client:
                assert client.state.sessions == []
        for name, content in odd.items():
            assert (daemon.paths.recordings / name).read_bytes() == content


async def test_a_private_session_leaves_no_file_once_it_is_closed() -> None:
    with directories():
        daemon = Daemon().start()
        async with DaemonClient(daemon.paths, client="test") as client:
            opening = cmd.Open(prompt=PromptSpec(text=b"a secret"), private=True)
            reply = await client.command(opening)
            assert reply.session is not None
        log = daemon.paths.recordings / f"{reply.session}.lir"
        assert log.exists()
        # A restart does not close it: it opens again, and is private still.
        daemon.stop()
        assert log.exists()
        daemon.start()
        async with attached(daemon.paths, reply.session) as watch:
            await watch.until(lambda c: c.prompt is not None)
            await watch.client.command(cmd.Close(), reply.session)
            # Who follows it sees its end all the same.
            columns = await watch.until(lambda c: c.closed)
            assert not log.exists()
            assert columns.limits is not None
            assert columns.limits.private
            async with attached(daemon.paths, reply.session) as late:
                await late.until(lambda c: c.closed)
        assert list(daemon.paths.recordings.iterdir()) == []
        daemon.stop()


async def test_who_had_a_session_before_it_was_closed_has_it_no_more() -> None:
    """At once, not when the hub next looks: whoever opens it again commands it."""
    with running_daemon(SLOW) as daemon:
        async with watching(daemon.paths) as first:
            await first.standing(0)
            await first.client.command(cmd.Close(), first.session)
            async with DaemonClient(daemon.paths, who="second@box", reconnect=False) as again:
                reply = await again.command(cmd.Reopen(session=first.session))
                assert reply.lease_no == 2
                assert again.holds(first.session)


async def test_a_log_that_ends_before_its_prompt_is_not_opened_for_who_asks() -> None:
    """Found by use: it was "open, waiting" for ever, and no key and no command moved it."""
    with running_daemon(SLOW) as daemon:
        async with watching(daemon.paths) as watch:
            await watch.standing(0)
            events = list(watch.events)
        kinds = [type(unpack_event(packed)) for _, packed in events]
        session = _write_prefix(daemon.paths.recordings, events, kinds.index(ev.SessionSet))
        path = daemon.paths.recordings / f"{session}.lir"
        whole = path.read_bytes()
        async with DaemonClient(daemon.paths) as client:
            with pytest.raises(InspectError, match="it ends before its prompt") as refused:
                await client.command(cmd.Reopen(session=session))
            assert refused.value.code == "damaged"
            assert session not in {info.session for info in client.state.sessions}
        assert path.read_bytes() == whole
