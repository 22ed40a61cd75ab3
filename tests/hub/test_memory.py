"""Memory that runs out in the middle of a forward, for real: the worker may not grow any more."""

import resource

import psutil
import pytest

from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.values import PromptSpec
from tests.daemons import attached, children, running_daemon, watching
from tests.worker.checkpoints import demo_model

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("memory")]

LONG = b"Kubernetes pods are scheduled by the " * 60
"""Its forward without a cache needs room that the worker does not have yet."""


@pytest.mark.fault("E3")
async def test_memory_that_runs_out_in_a_step_stops_that_session_and_no_other() -> None:
    with running_daemon(str(demo_model()), "hf") as daemon:
        async with watching(daemon.paths, run_to=3) as other:
            await other.standing(3)
            worker = psutil.Process(children(daemon.pid)["worker"].pid)
            before = worker.rlimit(psutil.RLIMIT_AS)
            worker.rlimit(psutil.RLIMIT_AS, (worker.memory_info().vms, before[1]))
            opening = cmd.Open(
                prompt=PromptSpec(text=LONG), cache_mode="none", run_to=None, max_steps=20
            )
            reply = await other.client.command(opening)
            assert reply.session is not None
            async with attached(daemon.paths, reply.session) as watch:
                columns = await watch.until(lambda c: c.stop is not None)
                assert columns.stop is not None
                assert columns.stop.reason == "no_memory", columns.stop
                assert columns.status == "paused"
                assert worker.is_running()
                worker.rlimit(psutil.RLIMIT_AS, (resource.RLIM_INFINITY, before[1]))
            assert [seq for seq, _ in other.events] == list(range(other.columns.next))
            await other.run_to(6)
            await other.standing(6)
            # Both without kernels of their own yet: one alike what failed, one of another length.
            for text in (LONG, LONG[: len(LONG) // 3]):
                again = cmd.Open(
                    prompt=PromptSpec(text=text), cache_mode="none", run_to=2, max_steps=20
                )
                reply = await other.client.command(again)
                assert reply.session is not None
                async with attached(daemon.paths, reply.session) as watch:
                    columns = await watch.until(lambda c: c.stop is not None)
                    assert columns.stop is not None
                    assert columns.stop.reason == "goal", columns.stop
            assert other.client.state.engine.engine == 1
            # And a fresh worker, for who asks for one.
            await other.client.command(cmd.KillEngine())
            await other.until(
                lambda _: (
                    (other.client.state.engine.engine, other.client.state.engine.word)
                    == (2, "ready")
                )
            )
            await other.run_to(8)
            columns = await other.standing(8)
            assert len(columns) == 8
            assert [branch.id for branch in columns.branches()] == [0]
            assert [seq for seq, _ in other.events] == list(range(other.columns.next))
