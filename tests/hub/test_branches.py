"""Branches through a real hub and the scripted worker: what each command does to the log."""

from collections.abc import Iterator

import pytest

from engine_daemon.errors import InspectError
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.reads import AskPreview, AskReroll, AskToken, AskWhatIf
from engine_daemon.protocol.synthetic import EOS_ID
from engine_daemon.protocol.values import Sampler
from engine_daemon.recording.columns import Columns
from tests.daemons import Daemon, Watch, attached, running_daemon, watching

SAMPLED = Sampler(greedy=False, temperature=2.0, seed=11)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon("scripted:rate=0,context=5000") as started:
        yield started


def kinds(watch: Watch, since: int) -> list[str]:
    return [type(unpack_event(packed)).__name__ for _, packed in watch.events[since:]]


async def send(watch: Watch, do: cmd.AnyCommand) -> cmd.Reply:
    return await watch.client.command(do, watch.session, watch.at())


async def stands(watch: Watch, branch: int, step: int) -> Columns:
    return await watch.until(
        lambda c: (
            (c.branch, c.place.step) == (branch, step)
            and c.status in ("paused", "ended")
            and c.stop is not None
        )
    )


async def run_to(watch: Watch, step: int) -> None:
    await watch.run_to(step)
    await stands(watch, watch.columns.branch, step)


async def test_forcing_a_recorded_step_opens_a_branch_and_overwrites_nothing(
    daemon: Daemon,
) -> None:
    async with watching(daemon.paths, run_to=8) as watch:
        await watch.standing(8)
        before, head = list(watch.columns.ids), len(watch.events)
        await send(watch, cmd.Force(id=65, step=3))
        columns = await stands(watch, 1, 4)
        assert list(columns.ids) == [*before[:3], 65]
        assert columns.how(3) == "forced"
        assert kinds(watch, head) == [
            *("Commanded", "Branched", "Predicted", "Stepped", "Predicted", "Stopped")
        ]
        again = unpack_event(watch.events[head + 2][1])
        assert isinstance(again, ev.Predicted)
        assert (again.branch, again.step, again.processed, again.forward_ms) == (1, 3, 0, 0.0)
        assert again.restored is not None
        assert again.restored.method == "row"
        assert list(columns.path(0).ids) == before
        assert columns.place == columns.place
        infos = columns.branches()
        assert [(b.id, b.parent, b.step, b.length) for b in infos] == [
            (0, None, 0, 8),
            (1, 0, 3, 1),
        ]
        await send(watch, cmd.Switch(branch=0))
        columns = await stands(watch, 0, 8)
        assert list(columns.ids) == before
        assert columns.pending is not None
        await run_to(watch, 10)
        assert list(watch.columns.ids)[:8] == before


async def test_a_branch_goes_on_as_a_session_on_the_same_ids_does(daemon: Daemon) -> None:
    async with watching(daemon.paths, run_to=12) as watch:
        await watch.standing(12)
        await send(watch, cmd.Force(id=70, step=5))
        await stands(watch, 1, 6)
        await run_to(watch, 20)
        branched = list(watch.columns.ids)
        async with watching(daemon.paths, run_to=5) as fresh:
            await fresh.standing(5)
            await send(fresh, cmd.Force(id=70))
            await stands(fresh, 0, 6)
            await run_to(fresh, 20)
            assert list(fresh.columns.ids) == branched


async def test_a_late_joiner_and_a_restart_see_all_branches() -> None:
    with running_daemon("scripted:rate=0") as daemon:
        async with watching(daemon.paths, run_to=6) as watch:
            await watch.standing(6)
            await send(watch, cmd.Force(id=65, step=2))
            await stands(watch, 1, 3)
            await run_to(watch, 5)
            await send(watch, cmd.Force(id=66, step=1))
            await stands(watch, 2, 2)
            await send(watch, cmd.Switch(branch=1))
            columns = await stands(watch, 1, 5)
            session, ids = watch.session, {b: list(columns.path(b).ids) for b in (0, 1, 2)}
            async with attached(daemon.paths, session) as late:
                await stands(late, 1, 5)
                assert {b: list(late.columns.path(b).ids) for b in (0, 1, 2)} == ids
        daemon.stop()
        daemon.start()
        async with attached(daemon.paths, session) as watch:
            await watch.until(lambda c: c.place.step == 5)
            assert watch.columns.branch == 1
            assert {b: list(watch.columns.path(b).ids) for b in (0, 1, 2)} == ids
            await engine_is_ready(watch)
            await run_to(watch, 7)
            assert list(watch.columns.ids)[:5] == ids[1]
            await send(watch, cmd.Force(id=67, step=0))
            await stands(watch, 3, 1)
            assert [b.parent for b in watch.columns.branches()] == [None, 0, 0, 0]
            await send(watch, cmd.Switch(branch=2))
            await stands(watch, 2, 2)
            await run_to(watch, 4)
            assert list(watch.columns.ids)[:2] == ids[2]


async def engine_is_ready(watch: Watch) -> None:
    while watch.client.state.engine.word not in ("ready", "busy"):
        await watch.until(lambda _: watch.client.state.engine.word in ("ready", "busy"))


async def test_the_sampler_at_a_recorded_step(daemon: Daemon) -> None:
    async with watching(daemon.paths, run_to=6) as watch:
        await watch.standing(6)
        head = len(watch.events)
        await send(watch, cmd.SetSampler(sampler=SAMPLED, step=2))
        columns = await stands(watch, 1, 2)
        assert kinds(watch, head) == ["Commanded", "Branched", "SamplerSet", "Predicted", "Stopped"]
        assert columns.sampler == SAMPLED
        await send(watch, cmd.Switch(branch=0))
        columns = await stands(watch, 0, 6)
        assert columns.sampler == Sampler()


async def test_the_sampler_of_a_branch_that_was_switched_to(daemon: Daemon) -> None:
    """Nothing was predicted there yet: the distribution comes under the new sampler."""
    async with watching(daemon.paths, run_to=6) as watch:
        await watch.standing(6)
        await send(watch, cmd.Force(id=65, step=2))
        await stands(watch, 1, 3)
        await send(watch, cmd.Switch(branch=0))
        await stands(watch, 0, 6)
        head = len(watch.events)
        await send(watch, cmd.SetSampler(sampler=SAMPLED))
        await watch.until(lambda _: "Predicted" in kinds(watch, head))
        pending = watch.columns.pending
        assert pending is not None
        expected = [row.logit / SAMPLED.temperature for row in pending.candidates.rows()]
        shown = [row.final_logprob for row in pending.candidates.rows()]
        assert shown[0] - shown[5] == pytest.approx(expected[0] - expected[5], abs=1e-4)


async def test_a_branch_has_the_sampler_that_was_in_force_where_it_was_asked_for(
    daemon: Daemon,
) -> None:
    """Its parent ended under another one; resampling draws, and forcing goes on drawing."""
    async with watching(daemon.paths, run_to=6) as watch:
        await watch.standing(6)
        await send(watch, cmd.SetSampler(sampler=SAMPLED, step=4))
        await stands(watch, 1, 4)
        await send(watch, cmd.Resample(step=2))
        columns = await stands(watch, 2, 3)
        assert columns.sampler == SAMPLED
        assert columns.how(2) == "sampled"
        await send(watch, cmd.Force(id=65, step=1))
        columns = await stands(watch, 3, 2)
        assert columns.sampler == SAMPLED
        await send(watch, cmd.Switch(branch=0))
        assert (await stands(watch, 0, 6)).sampler == Sampler()
        with pytest.raises(InspectError, match="greedy"):
            await send(watch, cmd.Resample(step=2))


async def test_a_forced_text_goes_in_whole_whatever_condition_is_true(daemon: Daemon) -> None:
    async with watching(daemon.paths, run_to=2) as watch:
        await watch.standing(2)
        await send(watch, cmd.AddCondition(source="rank >= 1"))
        await watch.until(lambda columns: bool(columns.conditions))
        await send(watch, cmd.ForceText(ids=[65, 66, EOS_ID, 67]))
        columns = await stands(watch, 0, 6)
        assert list(columns.ids)[2:] == [65, 66, EOS_ID, 67]
        assert columns.stop is not None
        assert columns.stop.reason == "condition"
        assert columns.fired_here() == [(5, 1)]


async def test_a_condition_that_was_true_on_a_branch_is_marked_there_alone(daemon: Daemon) -> None:
    async with watching(daemon.paths, run_to=6) as watch:
        await watch.standing(6)
        await send(watch, cmd.Force(id=65, step=2))
        await stands(watch, 1, 3)
        await send(watch, cmd.AddCondition(source="step >= 4"))
        await watch.until(lambda columns: bool(columns.conditions))
        await send(watch, cmd.RunTo(step=9))
        await watch.until(lambda columns: bool(columns.fired))
        here = watch.columns.fired_here()
        assert len(here) == 1
        assert Columns.of(watch.columns.image()).fired_here() == here
        await send(watch, cmd.Switch(branch=0))
        assert (await stands(watch, 0, 6)).fired_here() == []


async def test_resampling_uses_a_salt_nobody_used(daemon: Daemon) -> None:
    async with watching(daemon.paths, run_to=6, sampler=SAMPLED) as watch:
        await watch.standing(6)
        draws = set()
        for turn in range(1, 4):
            await send(watch, cmd.Resample(step=3, branch=0))
            await stands(watch, turn, 4)
            assert watch.columns.salt == turn
            stepped = unpack_event(watch.events[watch.columns.seq_stepped[3]][1])
            assert isinstance(stepped, ev.Stepped)
            draws.add(stepped.draw)
        assert len(draws) == 3
        await send(watch, cmd.Resample())
        await stands(watch, 3, 5)
        assert watch.columns.salt == 4


async def test_a_text_is_forced_as_its_ids(daemon: Daemon) -> None:
    async with watching(daemon.paths, run_to=4) as watch:
        await watch.standing(4)
        await send(watch, cmd.ForceText(ids=[72, 105, 33]))
        columns = await stands(watch, 0, 7)
        assert list(columns.ids)[4:] == [72, 105, 33]
        await send(watch, cmd.ForceText(ids=[72, 111], step=1))
        columns = await stands(watch, 1, 3)
        assert list(columns.ids)[1:] == [72, 111]
        assert [columns.how(step) for step in range(1, 3)] == ["forced", "forced"]


@pytest.mark.parametrize(
    "do",
    [
        cmd.Force(id=1, step=9),
        cmd.Force(id=1, step=-1),
        cmd.Force(id=1, branch=4),
        cmd.ForceText(ids=[]),
        cmd.ForceText(ids=[10**8]),
        cmd.Switch(branch=4),
        cmd.Resample(step=0),
        cmd.Recompute(step=99),
    ],
)
async def test_what_cannot_be_meant_changes_nothing(daemon: Daemon, do: cmd.AnyCommand) -> None:
    async with watching(daemon.paths, run_to=2) as watch:
        await watch.standing(2)
        head = len(watch.events)
        with pytest.raises(InspectError) as caught:
            await send(watch, do)
        assert caught.value.code == "bad_arg"
        await run_to(watch, 3)
        assert kinds(watch, head) == ["Commanded", "Stepped", "Predicted", "Stopped"]


async def test_the_guard_names_the_branch(daemon: Daemon) -> None:
    async with watching(daemon.paths, run_to=4) as watch:
        await watch.standing(4)
        old = watch.at()
        await send(watch, cmd.Force(id=65, step=3))
        await stands(watch, 1, 4)
        with pytest.raises(InspectError) as caught:
            await watch.client.command(cmd.RunTo(step=5), watch.session, old)
        assert caught.value.code == "stale"


async def test_an_ended_branch_stays_ended(daemon: Daemon) -> None:
    async with watching(daemon.paths, max_steps=3, run_to=None) as watch:
        await watch.until(lambda c: c.status == "ended")
        await send(watch, cmd.Force(id=65, step=1))
        await stands(watch, 1, 2)
        await send(watch, cmd.Switch(branch=0))
        columns = await stands(watch, 0, 3)
        assert (columns.place.kind, columns.place.reason) == ("ended", "length")
        await run_to(watch, 4)
        assert len(watch.columns) == 4


async def test_reads_on_history(daemon: Daemon) -> None:
    async with watching(daemon.paths, run_to=6, sampler=SAMPLED, candidates=400) as watch:
        await watch.standing(6)
        recorded = unpack_event(watch.events[watch.columns.seq_predicted[2]][1])
        assert isinstance(recorded, ev.Predicted)
        rows = recorded.candidates.rows()
        head = len(watch.events)
        asked = [rows[0].id, rows[40].id, rows[-1].id]
        answer = await watch.client.ask(AskToken(ids=asked, step=2), watch.session)
        assert answer.tokens is not None
        for token, row in zip(answer.tokens, [rows[0], rows[40], rows[-1]], strict=True):
            assert token.logit == pytest.approx(row.logit, abs=1e-5)
            assert token.final_logprob == pytest.approx(row.final_logprob, abs=1e-5)
            assert token.logprob == pytest.approx(row.logit - recorded.logsumexp, abs=1e-5)
            assert token.piece == row.piece
            assert token.rank == 1 + sum(other.logit > row.logit for other in rows)
        greedy = await watch.client.ask(AskWhatIf(sampler=Sampler(), step=2), watch.session)
        assert greedy.figures is not None
        assert greedy.figures.picked.id == rows[0].id
        assert greedy.figures.entropy_bits == recorded.entropy_bits
        preview = await watch.client.ask(AskPreview(sampler=SAMPLED), watch.session)
        assert preview.figures is not None
        await run_to(watch, 7)
        assert preview.figures.picked.id == watch.columns.ids[6]
        n = 4000
        rerolled = await watch.client.ask(AskReroll(n=n, step=2), watch.session)
        assert rerolled.tokens is not None
        expected = {row.id: n * 2.718281828459045**row.final_logprob for row in rows}
        for token in rerolled.tokens[:5]:
            assert token.count is not None
            spread = (expected[token.id]) ** 0.5
            assert abs(token.count - expected[token.id]) < 5 * spread
        assert sum(token.count or 0 for token in rerolled.tokens) <= n
        assert kinds(watch, head) == ["Commanded", "Stepped", "Predicted", "Stopped"]


async def test_a_row_that_is_gone_says_so_and_can_be_made_again() -> None:
    with running_daemon("scripted:rate=0") as daemon:
        async with watching(daemon.paths, run_to=6) as watch:
            await watch.standing(6)
            session = watch.session
        daemon.stop()
        daemon.start()
        async with attached(daemon.paths, session) as watch:
            await watch.until(lambda c: c.place.step == 6)
            await engine_is_ready(watch)
            await run_to(watch, 7)
            with pytest.raises(InspectError) as caught:
                await watch.client.ask(AskToken(ids=[65], step=2), session)
            assert caught.value.code == "gone"
            reply = await send(watch, cmd.Recompute(step=2))
            await watch.until(
                lambda _: isinstance(unpack_event(watch.events[-1][1]), ev.Recomputed)
            )
            made = unpack_event(watch.events[-1][1])
            assert isinstance(made, ev.Recomputed)
            assert (made.branch, made.step, made.cause) == (0, 2, reply.cmd)
            answer = await watch.client.ask(AskToken(ids=[65], step=2), session)
            assert answer.tokens is not None
            ids = list(watch.columns.ids)
            await run_to(watch, 9)
            assert list(watch.columns.ids)[:7] == ids


async def test_the_row_of_a_pending_step_is_made_again_where_the_engine_holds_nothing() -> None:
    with running_daemon("scripted:rate=0") as daemon:
        async with watching(daemon.paths, run_to=3) as watch:
            await watch.standing(3)
            session = watch.session
        daemon.stop()
        daemon.start()
        async with attached(daemon.paths, session) as watch:
            await watch.until(lambda c: c.place.step == 3)
            await engine_is_ready(watch)
            with pytest.raises(InspectError) as caught:
                await watch.client.ask(AskReroll(n=10, step=3), session)
            assert caught.value.code == "gone"
            await send(watch, cmd.Recompute(step=3, branch=0))
            await watch.until(
                lambda _: any(isinstance(unpack_event(e), ev.Recomputed) for _, e in watch.events)
            )
            answer = await watch.client.ask(AskReroll(n=10, step=3), session)
            assert sum(one.count or 0 for one in answer.tokens or []) == 10
            assert watch.columns.place.step == 3
