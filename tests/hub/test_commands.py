"""Commands through a real hub, tokens process and scripted worker: what each does to the log."""

import os
from collections.abc import Iterator

import pytest

from engine_daemon.client import DaemonClient
from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.reads import AskEncode, AskEvents
from engine_daemon.protocol.values import DroppedBy, PromptSpec, Sampler
from tests.daemons import Daemon, Watch, attached, running_daemon, watching

SLOW = "scripted:rate=200,context=5000"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon(SLOW) as started:
        yield started


def kinds(watch: Watch) -> list[str]:
    return [type(unpack_event(packed)).__name__ for _, packed in watch.events]


async def rejected(watch: Watch, do: cmd.AnyCommand, at: cmd.At | None) -> InspectError:
    with pytest.raises(InspectError) as caught:
        await watch.client.command(do, watch.session, at)
    return caught.value


async def test_opening_logs_everything_up_to_the_first_distribution(daemon: Daemon) -> None:
    async with watching(daemon.paths) as watch:
        columns = await watch.standing(0)
        seen = kinds(watch)
        assert seen[:4] == ["Opened", "Commanded", "SessionSet", "SamplerSet"]
        assert sorted(seen[4:6]) == ["EngineStarted", "PromptSet"]
        assert seen[6:] == ["Predicted", "Stopped"]
        assert columns.status == "paused"
        assert columns.place.kind == "pending"
        assert columns.pending is not None
        assert b"".join(t.piece for t in columns.prompt_tokens) == b"Pods are scheduled by the"


async def test_a_step_is_stepped_predicted_stopped(daemon: Daemon) -> None:
    async with watching(daemon.paths) as watch:
        await watch.standing(0)
        reply = await watch.run_to(1)
        columns = await watch.standing(1)
        assert kinds(watch)[-4:] == ["Commanded", "Stepped", "Predicted", "Stopped"]
        for _, packed in watch.events[-4:]:
            event = unpack_event(packed)
            assert isinstance(event, ev.Event)
            assert event.cause == reply.cmd
        assert columns.stop is not None
        assert columns.stop.reason == "goal"


async def test_the_chosen_token_is_the_first_candidate_of_its_own_step(daemon: Daemon) -> None:
    async with watching(daemon.paths) as watch:
        columns = await watch.standing(0)
        for step in range(4):
            assert columns.pending is not None
            first = columns.pending.candidates.rows()[0]
            await watch.run_to(step + 1)
            await watch.standing(step + 1)
            assert columns.ids[step] == first.id
            assert columns.piece(step) == first.piece


async def test_force_at_the_pending_step(daemon: Daemon) -> None:
    async with watching(daemon.paths) as watch:
        columns = await watch.standing(0)
        assert columns.pending is not None
        third = columns.pending.candidates.rows()[2]
        await watch.client.command(cmd.Force(id=third.id), watch.session, watch.at())
        await watch.standing(1)
        assert columns.ids[0] == third.id
        assert columns.how(0) == "forced"
        assert columns.rank[0] >= 2


async def test_another_sampler_is_evaluated_without_a_forward(daemon: Daemon) -> None:
    async with watching(daemon.paths) as watch:
        columns = await watch.standing(0)
        before = columns.pending
        assert before is not None
        sampler = Sampler(greedy=False, temperature=0.5, top_k=3, seed=7)
        await watch.client.command(cmd.SetSampler(sampler=sampler), watch.session, watch.at())
        await watch.until(lambda c: c.pending is not None and c.pending is not before)
        after = columns.pending
        assert after is not None
        assert columns.sampler == sampler
        assert after.candidates.logit == before.candidates.logit
        kept = [row for row in after.candidates.rows() if row.dropped_by is DroppedBy.KEPT]
        assert len(kept) == 3
        assert "Stepped" not in kinds(watch)


async def test_pause_stops_a_run_and_every_viewer_sees_the_same_last_step(daemon: Daemon) -> None:
    async with watching(daemon.paths) as watch, attached(daemon.paths, watch.session) as other:
        await watch.standing(0)
        await watch.run_to(None)
        await watch.until(lambda c: len(c) >= 5)
        await watch.client.command(cmd.Pause(), watch.session)
        columns = await watch.until(lambda c: c.status == "paused")
        assert columns.stop is not None
        assert columns.stop.reason == "pause"
        seen = await other.until(lambda c: c.status == "paused" and len(c) == len(columns))
        assert other.events == watch.events
        assert seen.ids == columns.ids


async def test_a_late_joiner_gets_the_same_log(daemon: Daemon) -> None:
    async with watching(daemon.paths, run_to=30) as watch:
        await watch.standing(30)
        async with attached(daemon.paths, watch.session) as late:
            await late.standing(30)
            assert late.events == watch.events


@pytest.mark.fault("W2")
async def test_a_command_for_another_place_is_stale(daemon: Daemon) -> None:
    async with watching(daemon.paths) as watch:
        await watch.standing(0)
        await watch.run_to(1)
        await watch.standing(1)
        error = await rejected(watch, cmd.RunTo(step=1), cmd.At(branch=0, step=0))
        assert error.code == "stale"
        assert error.exit_code == Exit.DAEMON
        assert len(watch.columns) == 1


async def test_the_place_is_required(daemon: Daemon) -> None:
    async with watching(daemon.paths) as watch:
        await watch.standing(0)
        assert (await rejected(watch, cmd.RunTo(step=1), None)).code == "bad_arg"
        assert (await rejected(watch, cmd.Force(id=3), None)).code == "bad_arg"


async def test_a_running_session_is_busy_but_pause_is_heard(daemon: Daemon) -> None:
    async with watching(daemon.paths) as watch:
        await watch.standing(0)
        await watch.run_to(None)
        await watch.until(lambda c: len(c) >= 1)
        for do in (cmd.RunTo(step=99), cmd.Force(id=3), cmd.SetSampler(sampler=Sampler())):
            assert (await rejected(watch, do, watch.at())).code == "busy"
        await watch.client.command(cmd.Pause(), watch.session)
        await watch.until(lambda c: c.status == "paused")


@pytest.mark.parametrize(
    "do",
    [
        cmd.RunTo(step=0),
        cmd.Force(id=2**31),
        cmd.SetSampler(sampler=Sampler(greedy=False, temperature=float("nan"))),
        cmd.SetSampler(sampler=Sampler(greedy=False, top_p=0.0)),
        cmd.SetSampler(sampler=Sampler(greedy=False, min_p=1.5)),
        cmd.SetSampler(sampler=Sampler(greedy=False, top_k=-1)),
        cmd.SetSampler(sampler=Sampler(repetition_penalty=1e-300)),
        cmd.SetSampler(sampler=Sampler(presence_penalty=1e39)),
        cmd.SetSampler(sampler=Sampler(frequency_penalty=float("nan"))),
    ],
)
async def test_values_out_of_range_change_nothing(daemon: Daemon, do: cmd.AnyCommand) -> None:
    async with watching(daemon.paths) as watch:
        await watch.standing(0)
        head = len(watch.events)
        error = await rejected(watch, do, watch.at())
        assert error.code == "bad_arg"
        assert error.exit_code == Exit.USAGE
        await watch.run_to(1)
        await watch.standing(1)
        assert kinds(watch)[head:] == ["Commanded", "Stepped", "Predicted", "Stopped"]


@pytest.mark.fault("W2")
async def test_the_same_command_twice_acts_once(daemon: Daemon) -> None:
    async with watching(daemon.paths) as watch:
        await watch.standing(0)
        message = cmd.Cmd(
            cmd=os.urandom(16),
            epoch=watch.client.welcome.ep,
            do=cmd.RunTo(step=1),
            session=watch.session,
            at=watch.at(),
        )
        replies = [
            await watch.client._request(message, cmd.Reply, watch.session, 5.0) for _ in range(20)
        ]
        await watch.standing(1)
        assert {reply.status for reply in replies} == {"accepted"}
        assert kinds(watch).count("Stepped") == 1


@pytest.mark.fault("W2")
async def test_a_command_from_another_life_of_the_daemon_is_stale(daemon: Daemon) -> None:
    async with watching(daemon.paths) as watch:
        await watch.standing(0)
        message = cmd.Cmd(
            cmd=os.urandom(16),
            epoch=b"12345678",
            do=cmd.RunTo(step=1),
            session=watch.session,
            at=watch.at(),
        )
        reply = await watch.client._request(message, cmd.Reply, watch.session, 5.0)
        assert (reply.status, reply.code) == ("rejected", "stale")


async def test_unknown_session(daemon: Daemon) -> None:
    async with DaemonClient(daemon.paths) as client:
        with pytest.raises(InspectError, match="no session"):
            await client.command(cmd.Pause(), "ZZZZZZZZ")


async def test_close_ends_the_session_and_its_log_says_by_whom(daemon: Daemon) -> None:
    async with watching(daemon.paths) as watch:
        await watch.standing(0)
        await watch.client.command(cmd.Close(), watch.session)
        await watch.until(lambda c: c.closed)
        last = unpack_event(watch.events[-1][1])
        assert isinstance(last, ev.Closed)
        assert (last.by, last.count) == ("user", len(watch.events) - 1)
        assert (await rejected(watch, cmd.RunTo(step=1), watch.at())).code == "no_session"


async def test_a_running_session_stands_before_it_is_closed(daemon: Daemon) -> None:
    async with watching(daemon.paths, run_to=None) as watch:
        await watch.until(lambda c: len(c) >= 3)
        await watch.client.command(cmd.Close(), watch.session)
        columns = await watch.until(lambda c: c.closed)
        assert kinds(watch)[-3:] == ["Predicted", "Stopped", "Closed"]
        assert columns.pending is not None
        assert columns.stop is not None
        assert (columns.stop.reason, columns.stop.pending) == ("pause", True)


@pytest.mark.parametrize(
    ("text", "code"),
    [(b"", "empty_prompt"), (b"x" * 300_000, "prompt_too_long")],
    ids=["empty", "long"],
)
async def test_a_prompt_that_cannot_be_used(daemon: Daemon, text: bytes, code: str) -> None:
    async with watching(daemon.paths, text) as watch:
        columns = await watch.until(lambda c: c.closed)
        assert columns.rejected is not None
        assert columns.rejected.code == code
        assert columns.rejected.message


async def test_length_ends_a_session_and_it_goes_on_when_asked(daemon: Daemon) -> None:
    async with watching(daemon.paths, max_steps=3, run_to=None) as watch:
        columns = await watch.until(lambda c: c.status == "ended")
        assert (columns.place.step, columns.place.reason) == (3, "length")
        assert columns.pending is None
        await watch.run_to(3)
        await watch.until(lambda c: c.pending is not None and c.status == "paused")
        assert (columns.place.kind, columns.place.step) == ("pending", 3)
        await watch.run_to(5)
        await watch.standing(5)
        assert len(columns) == 5


async def test_encode_is_a_read(daemon: Daemon) -> None:
    async with DaemonClient(daemon.paths) as client:
        answer = await client.ask(AskEncode(prompt=PromptSpec(text=b"hi \xf0\x9f\x8c\xb5")))
        assert answer.prompt is not None
        encoded = unpack_event(answer.prompt)
        assert isinstance(encoded, ev.PromptSet)
        assert encoded.pieces == b"hi \xf0\x9f\x8c\xb5"
        assert client.state.sessions == [] or all(s.title != "hi" for s in client.state.sessions)


async def test_events_can_be_asked_for_by_number(daemon: Daemon) -> None:
    async with watching(daemon.paths) as watch:
        await watch.standing(0)
        answer = await watch.client.ask(AskEvents(seqs=[6, 0, 999]), watch.session)
        assert answer.ev == [watch.events[6], watch.events[0]]


async def test_an_observer_only_watches(daemon: Daemon) -> None:
    async with watching(daemon.paths) as watch:
        await watch.standing(0)
        async with DaemonClient(daemon.paths, observe=True) as observer:
            for do in (cmd.RunTo(step=1), cmd.Force(id=1), cmd.Close(), cmd.StopDaemon()):
                with pytest.raises(InspectError) as caught:
                    await observer.command(do, watch.session, watch.at())
                assert caught.value.code == "observer"


async def test_a_pause_during_the_first_forward_holds(daemon: Daemon) -> None:
    """The run was asked for already: the pause must reach the worker, not only the log."""
    with running_daemon("scripted:rate=1") as slow:
        async with watching(slow.paths, run_to=None) as watch:
            await watch.until(lambda c: c.engine is not None)
            await watch.client.command(cmd.Pause(), watch.session)
            columns = await watch.until(lambda c: c.stop is not None)
            assert columns.stop is not None
            assert columns.stop.reason == "pause"
            await watch.client.command(cmd.Pause(), watch.session)
            await watch.run_to(len(columns) + 1)
            await watch.standing(len(columns) + 1)


async def test_who_looks_at_a_closed_session_keeps_it_when_it_is_renamed(daemon: Daemon) -> None:
    async with watching(daemon.paths) as watch:
        await watch.standing(0)
        await watch.client.command(cmd.Close(), watch.session, None)
        await watch.until(lambda c: c.closed)
        (before,) = [
            e for _, packed in watch.events if isinstance(e := unpack_event(packed), ev.Closed)
        ]
        await watch.client.command(cmd.Rename(title="seen by all"), watch.session)
        await watch.until(lambda c: c.title == "seen by all")
        await watch.until(lambda c: c.next >= before.count + 4)
        assert kinds(watch)[-4:] == ["Closed", "Commanded", "Renamed", "Closed"]
        last = unpack_event(watch.events[-1][1])
        assert isinstance(last, ev.Closed)
        assert (last.by, last.cause, last.count) == (before.by, before.cause, before.count + 3)
        assert watch.columns.closed
        assert (await watch.client.ask(AskEvents(seqs=[0]), watch.session)).ev
        with pytest.raises(InspectError, match="1 to 200 characters"):
            await watch.client.command(cmd.Rename(title=" "), watch.session)
        async with DaemonClient(daemon.paths) as other:
            state = other.state
        assert watch.session not in [one.session for one in state.sessions]
        assert any(watch.session in one.sessions for one in state.viewers)
