"""Conditions, watch lists and time limits through a real hub, tokens process and worker."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from engine_daemon.client import DaemonClient
from engine_daemon.errors import InspectError
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.reads import AskCondition
from engine_daemon.protocol.values import PromptSpec
from engine_daemon.recording.columns import Columns
from tests.daemons import Daemon, Watch, attached, children, directories, running_daemon, wait_for

SLOW = "scripted:rate=200,context=5000"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon(SLOW) as started:
        yield started


@asynccontextmanager
async def opened(daemon: Daemon, **fields: object) -> AsyncIterator[Watch]:
    """A session opened with these fields of `Open`, running unless they say otherwise."""
    plain: dict[str, object] = {"prompt": PromptSpec(text=b"Pods are"), "run_to": None}
    async with DaemonClient(daemon.paths, client="test") as client:
        command = cmd.Open(**(plain | fields))  # type: ignore[arg-type]  # names of Open
        reply = await client.command(command)
        assert reply.session is not None
        watch = Watch(client, reply.session)
        try:
            yield watch
        finally:
            await watch.close()


@contextmanager
def loading(model: str) -> Iterator[Daemon]:
    """A daemon whose hub answers while its model is on the way."""
    with directories():
        daemon = Daemon(model)
        daemon.start(wait="hub")
        try:
            yield daemon
        finally:
            daemon.stop()


def of(watch: Watch, kind: type[ev.Event]) -> list[ev.Event]:
    events = [unpack_event(packed) for _, packed in watch.events]
    return [event for event in events if isinstance(event, kind)]


def stopped(columns: Columns, reason: str) -> bool:
    return columns.stop is not None and columns.stop.reason == reason


async def test_conditions_of_the_opening_are_logged_before_anything_is_decoded(
    daemon: Daemon,
) -> None:
    until = ['token=" of" and step=900', "step=6"]
    async with opened(daemon, until=until) as watch:
        columns = await watch.until(lambda c: stopped(c, "condition"))
        assert [added.source for added in columns.conditions.values()] == until
        assert list(columns.conditions) == [1, 2]
        stop = columns.stop
        assert stop is not None
        assert (stop.step, stop.condition, stop.source) == (6, 2, "step=6")
        assert columns.fired == [(6, 2)]
        kinds = [type(unpack_event(packed)) for _, packed in watch.events]
        assert kinds.index(ev.ConditionAdded) < kinds.index(ev.Predicted)
        (first, _) = of(watch, ev.ConditionAdded)
        assert isinstance(first, ev.ConditionAdded)
        assert [literal.text for literal in first.literals] == [b" of"]


async def test_a_text_that_is_no_token_rejects_the_session_and_names_its_pieces(
    daemon: Daemon,
) -> None:
    async with opened(daemon, until=['p("qx")>0.5']) as watch:
        columns = await watch.until(lambda c: c.closed)
        assert columns.rejected is not None
        assert columns.rejected.code == "no_token"
        assert '"q" "x"' in columns.rejected.message
        assert columns.pending is None


async def test_a_condition_is_added_and_removed_while_it_runs(daemon: Daemon) -> None:
    async with opened(daemon) as watch:
        await watch.until(lambda c: len(c) >= 2)
        removed = await watch.client.command(cmd.AddCondition(source="step>=1"), watch.session)
        await watch.until(lambda c: stopped(c, "condition"))
        added = of(watch, ev.ConditionAdded)[0]
        assert added.cause == removed.cmd
        assert watch.columns.stop is not None
        assert watch.columns.stop.step >= 2
        await watch.client.command(cmd.RemoveCondition(number=1), watch.session)
        await watch.until(lambda c: not c.conditions)
        await watch.run_to(None)
        length = len(watch.columns)
        await watch.until(lambda c: len(c) >= length + 20)
        target = len(watch.columns) + 40
        await watch.client.command(cmd.AddCondition(source=f"step={target}"), watch.session)
        columns = await watch.until(lambda c: c.status == "paused")
        assert columns.stop is not None
        assert (columns.stop.step, columns.stop.condition) == (target, 2)
        said = [e.text for e in of(watch, ev.Commanded) if isinstance(e, ev.Commanded) and e.text]
        assert said == ["step>=1", f"step={target}"]


async def test_a_condition_that_cannot_be_used_is_told_in_the_log(daemon: Daemon) -> None:
    async with opened(daemon, run_to=0) as watch:
        await watch.standing(0)
        for source, code in (("entropy>>3", "bad_condition"), ('token="qx"', "no_token")):
            reply = await watch.client.command(cmd.AddCondition(source=source), watch.session)
            columns = await watch.until(lambda c, s=source: c.refused and c.refused.source == s)  # type: ignore[misc]
            assert columns.refused is not None
            assert (columns.refused.code, columns.refused.cause) == (code, reply.cmd)
        assert not watch.columns.conditions
        assert watch.columns.status == "paused"


async def test_whether_a_condition_can_be_used_can_be_asked(daemon: Daemon) -> None:
    async with opened(daemon, run_to=0) as watch:
        await watch.standing(0)
        await watch.client.ask(AskCondition(source='token=" of"'), watch.session)
        with pytest.raises(InspectError, match='"q" "x"') as caught:
            await watch.client.ask(AskCondition(source='token="qx"'), watch.session)
        assert caught.value.code == "no_token"


@pytest.mark.parametrize(
    ("do", "words"),
    [
        (cmd.AddCondition(source="  "), "1 to 2000"),
        (cmd.AddCondition(source="x" * 2001), "1 to 2000"),
        (cmd.RemoveCondition(number=7), "no condition 7"),
        (cmd.SetWatch(texts=[b" of"] * 17), "at most 16"),
        (cmd.SetWatch(texts=[b""]), "1 to 4096"),
    ],
)
async def test_refusals(daemon: Daemon, do: cmd.AnyCommand, words: str) -> None:
    async with opened(daemon, run_to=0) as watch:
        await watch.standing(0)
        with pytest.raises(InspectError, match=words) as caught:
            await watch.client.command(do, watch.session)
        assert caught.value.code == "bad_arg"


@pytest.mark.parametrize(
    "fields", [{"until": ["step=1"] * 33}, {"watch": [b"a"] * 17}, {"timeout_s": 0.0}]
)
async def test_openings_that_are_refused(daemon: Daemon, fields: dict[str, object]) -> None:
    with pytest.raises(InspectError) as caught:
        async with opened(daemon, **fields):
            pass
    assert caught.value.code == "bad_arg"


async def test_a_watch_list_is_in_every_step_and_can_be_changed(daemon: Daemon) -> None:
    async with opened(daemon, watch=[b" of", b"a"], run_to=3) as watch:
        columns = await watch.standing(3)
        predicted = [e for e in of(watch, ev.Predicted) if isinstance(e, ev.Predicted)]
        assert [[r.piece for r in p.watched.rows()] for p in predicted if p.watched] == (
            [[b" of", b"a"]] * 4
        )
        await watch.client.command(cmd.SetWatch(texts=[b" life"]), watch.session)
        await watch.until(
            lambda c: (
                c.pending is not None
                and c.pending.watched is not None
                and [row.piece for row in c.pending.watched.rows()] == [b" life"]
            )
        )
        assert columns.place.step == 3
        await watch.client.command(cmd.SetWatch(texts=[]), watch.session)
        await watch.until(lambda c: c.pending is not None and c.pending.watched is None)
        assert columns.watch is None


async def test_a_time_limit_stops_a_run_at_a_pending_step(daemon: Daemon) -> None:
    async with opened(daemon, timeout_s=0.3) as watch:
        columns = await watch.until(lambda c: stopped(c, "timeout"))
        assert columns.stop is not None
        assert columns.stop.pending
        assert len(columns) > 3
        assert all(e.stop is None for e in of(watch, ev.Stepped) if isinstance(e, ev.Stepped))
        opening = of(watch, ev.Commanded)[0]
        assert 0.3e9 <= columns.stop.t_ns - opening.t_ns < 3e9
        await watch.run_to(None)
        length = len(columns)
        await watch.until(lambda c: len(c) >= length + 100)
        assert columns.status == "running"


async def test_a_time_limit_ends_a_pause_too(daemon: Daemon) -> None:
    async with opened(daemon, timeout_s=0.4, until=["step=2"]) as watch:
        await watch.until(lambda c: stopped(c, "condition"))
        columns = await watch.until(lambda c: stopped(c, "timeout"))
        assert len(columns) == 2


async def test_loading_does_not_count() -> None:
    with loading("scripted:rate=500,load_ms=1500") as daemon:
        async with opened(daemon, timeout_s=0.5) as watch:
            columns = await watch.until(lambda c: stopped(c, "timeout"))
            assert len(columns) > 20


async def test_conditions_and_the_watch_list_outlive_the_daemon() -> None:
    with directories(), Daemon(SLOW) as daemon:
        until = ["step=900", "step=7"]
        async with opened(daemon, until=until, watch=[b" of"], run_to=3, timeout_s=60.0) as watch:
            await watch.standing(3)
            await watch.client.command(cmd.RemoveCondition(number=1), watch.session)
            await watch.until(lambda c: len(c.conditions) == 1)
            session = watch.session
        daemon.kill()
        daemon.start()
        async with attached(daemon.paths, session) as watch:
            columns = await watch.standing(3)
            assert list(columns.conditions) == [2]
            await watch.run_to(None)
            columns = await watch.until(lambda c: stopped(c, "condition"))
            assert columns.stop is not None
            assert (columns.stop.step, columns.stop.condition) == (7, 2)
            assert columns.pending is not None
            assert columns.pending.watched is not None
            assert columns.next_condition == 3


async def test_a_stop_is_not_repeated_after_a_restart() -> None:
    with directories(), Daemon(SLOW) as daemon:
        async with opened(daemon, until=["step>=4"]) as watch:
            await watch.until(lambda c: stopped(c, "condition"))
            session = watch.session
        daemon.kill()
        daemon.start()
        async with attached(daemon.paths, session) as watch:
            await watch.standing(4)
            await watch.run_to(None)
            columns = await watch.until(lambda c: len(c) == 5 and stopped(c, "condition"))
            assert columns.fired == [(4, 1), (5, 1)]


async def test_a_hub_killed_before_the_texts_were_resolved_resolves_them_again() -> None:
    with loading("scripted:rate=500,load_ms=1500") as daemon:
        async with opened(daemon, until=["step=5"], watch=[b" of"]) as watch:
            await watch.until(lambda c: c.limits is not None)
            session = watch.session
        daemon.kill()
        daemon.start()
        async with attached(daemon.paths, session) as watch:
            columns = await watch.until(lambda c: c.status == "paused")
            assert list(columns.conditions) == [1]
            assert columns.watch is not None


def _tokens_pid(daemon: Daemon) -> int | None:
    found = children(daemon.pid).get("tokens")
    return None if found is None else found.pid


async def test_a_tokens_process_that_dies_is_asked_again(daemon: Daemon) -> None:
    async with opened(daemon, run_to=0) as watch:
        await watch.standing(0)
        first = children(daemon.pid)["tokens"].pid
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: _tokens_pid(daemon) not in (None, first))
        source = 'token=" of"'
        while not watch.columns.conditions:
            try:
                await watch.client.command(cmd.AddCondition(source=source), watch.session)
            except InspectError as error:  # its tokenizer is not loaded yet
                if error.code != "busy":
                    raise
                await asyncio.sleep(0.05)  # only 100 requests a second are served
            else:
                await watch.until(lambda c: bool(c.conditions))


async def test_ids_beyond_the_vocabulary_reject_the_prompt(daemon: Daemon) -> None:
    ids = pack_ints("I", [5, 600])
    async with opened(daemon, prompt=PromptSpec(text=b"", ids=ids)) as watch:
        columns = await watch.until(lambda c: c.closed)
        assert columns.rejected is not None
        assert "vocabulary ends at 511" in columns.rejected.message
