"""Sessions that ended: what leaves them so, and what goes on from there."""

import pytest

from engine_daemon.errors import InspectError
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.synthetic import EOS_ID
from tests.daemons import attached, running_daemon, watching
from tests.hub.test_branches import engine_is_ready, run_to, send


async def test_looking_at_a_session_that_ended_leaves_it_ended_after_a_restart() -> None:
    """Found by use: it was pending again, and went on past a full context."""
    with running_daemon("scripted:rate=0,context=30") as daemon:
        async with watching(daemon.paths, run_to=None) as watch:
            await watch.until(lambda c: c.stop is not None and c.status == "ended")
            session, end = watch.session, watch.columns.place
            assert end.reason == "context"
        daemon.stop()
        daemon.start()
        async with attached(daemon.paths, session) as watch:
            await watch.until(lambda c: c.status == "ended")
            await engine_is_ready(watch)
            await send(watch, cmd.Recompute(step=2))
            await send(watch, cmd.MeasureNaive(lengths=[5]))
            columns = await watch.until(lambda c: len(c.naive) == 1)
            assert (columns.place, columns.status) == (end, "ended")
            with pytest.raises(InspectError) as full:
                await run_to(watch, end.step + 1)
            assert full.value.code == "context_full"
            # Where one can go on, one still can: on a branch, and after an end-of-sequence token.
            await send(watch, cmd.Force(id=EOS_ID, step=1))
            await watch.until(lambda c: c.branch == 1 and c.status == "ended")
        daemon.stop()
        daemon.start()
        async with attached(daemon.paths, session) as watch:
            await watch.until(lambda c: c.branch == 1 and c.status == "ended")
            await engine_is_ready(watch)
            await send(watch, cmd.Recompute(step=1))
            await run_to(watch, 3)
            assert watch.columns.place.kind == "pending"


async def test_a_text_that_the_model_has_no_room_for_is_refused_whole() -> None:
    """Found by use: only the session's own limit was looked at, and a part of the text went in."""
    with running_daemon("scripted:rate=0,context=30") as daemon:
        async with watching(daemon.paths, run_to=2) as watch:
            await watch.standing(2)
            room = 30 - len(watch.columns.path_ids())
            with pytest.raises(InspectError) as full:
                await send(watch, cmd.ForceText(ids=[65] * (room + 1)))
            assert full.value.code == "context_full"
            with pytest.raises(InspectError) as full:
                await send(watch, cmd.ForceText(ids=[65] * (room + 2), step=1))
            assert full.value.code == "context_full"
            assert len(watch.columns.branches()) == 1
            await send(watch, cmd.ForceText(ids=[65] * room))
            columns = await watch.until(lambda c: c.status == "ended")
            assert columns.place.reason == "context"
            assert len(columns.path_ids()) == 30
