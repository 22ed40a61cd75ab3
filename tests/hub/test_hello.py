"""Who joins is answered by the hub, whatever the engine is at: never after it."""

import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.events import Predicted
from engine_daemon.protocol.state import SessionInfo, State
from tests.daemons import Daemon, children, directories, running_daemon, wait_for, watching
from tests.hub.holding import held, holdable
from tests.hub.test_prefill import LENGTH, opened, told
from tests.hub.test_wire import RawViewer


def greeted(daemon: Daemon) -> State:
    """The state in the first thing that a new viewer is told, which is the welcome."""
    with closing(RawViewer(daemon)) as viewer:
        viewer.send(cmd.Hello(min=1, max=1, caps=[], client="raw", who="late"))
        received = viewer.receive(60.0)
        assert received is not None
        kind, welcome = received
        assert kind == "welcome"
        assert isinstance(welcome, cmd.Welcome)
        return welcome.state


def only_session(state: State) -> SessionInfo:
    (session,) = state.sessions
    return session


EXPECTED = {
    "loading": ({"starting", "loading"}, "waiting"),
    "paused": ({"ready", "busy"}, "paused"),
    "running": ({"ready", "busy"}, "running"),
}


@pytest.mark.parametrize("state", EXPECTED)
async def test_hello_is_answered_in_every_state(
    state: str, record_property: Callable[[str, object], None]
) -> None:
    """Promised within a second; the model of the first one would load for ten minutes."""
    model = "scripted:load_ms=600000" if state == "loading" else "scripted:rate=200,context=100000"
    with directories():
        daemon = Daemon(model).start(wait="hub")
        try:
            run_to = None if state == "running" else 0
            async with watching(daemon.paths, run_to=run_to) as watch:
                if state != "loading":
                    await watch.until(
                        lambda c: len(c) > 3 if state == "running" else c.stop is not None
                    )
                took, seen = [], set()
                for _ in range(5):
                    began = time.monotonic()
                    welcomed = greeted(daemon)
                    took.append(time.monotonic() - began)
                    seen.add((welcomed.engine.word, only_session(welcomed).status))
            words, status = EXPECTED[state]
            assert {word for word, _ in seen} <= words
            assert {found for _, found in seen} == {status}
        finally:
            daemon.stop()
    record_property("figure", f"{state}: welcomed within {max(took) * 1000:.0f} ms")


async def test_who_joins_in_the_middle_of_a_prefill_is_welcomed_before_it_ends() -> None:
    """The chunk that is being read does not come back until the test lets it: an answer that
    waited for the engine would not come at all."""
    with running_daemon("scripted:rate=1,context=9000") as daemon:
        async with opened(daemon) as watch:
            await watch.until(lambda c: c.place.kind == "prefill")
            worker = children(daemon.pid)["worker"]
            worker.suspend()
            try:
                wait_for(lambda: worker.status() == psutil.STATUS_STOPPED)
                state = greeted(daemon)
                session = only_session(state)
                assert (session.session, session.place.kind) == (watch.session, "prefill")
                assert 0 < session.place.done < session.place.total == LENGTH
                assert state.engine.word in ("busy", "stuck")
                assert told(watch, Predicted) == []
                with closing(RawViewer(daemon)) as late:  # and gets what is logged so far
                    late.send(cmd.Hello(min=1, max=1, caps=[], client="raw", who="late"))
                    late.until("welcome")
                    late.send(cmd.Sub(session=watch.session, start=0, win_bytes=1 << 20))
                    batch = late.until("batch")
                    assert isinstance(batch, cmd.Batch)
                    kinds = [type(unpack_event(packed)) for _, packed in batch.ev]
                    assert batch.start == 0
                    assert Predicted not in kinds
            finally:
                worker.resume()
            done = session.place.done
            await watch.until(lambda c: c.place.done > done)  # it goes on


@pytest.mark.fault("E1")
async def test_who_joins_right_after_a_crash_is_welcomed_before_the_engine_is_back() -> None:
    """The engine that is started again is held: the answer comes without it."""
    with directories() as root:
        lock = holdable(root)
        with Daemon("scripted:rate=100") as daemon:
            await look_at_a_crash(daemon, lock)


async def look_at_a_crash(daemon: Daemon, lock: Path) -> None:
    async with watching(daemon.paths, run_to=None, max_steps=100_000) as watch:
        await watch.until(lambda c: len(c) >= 3)
        worker = children(daemon.pid)["worker"]
        with held(lock):
            worker.send_signal(signal.SIGKILL)
            columns = await watch.until(lambda c: c.lost is not None)
            state = greeted(daemon)
            assert (state.engine.word, state.engine.engine) == ("starting", 2)
            session = only_session(state)
            assert session.session == watch.session
            assert (session.status, session.resident) == ("paused", False)
            assert session.place.step == columns.place.step

        await watch.until(lambda _: watch.client.state.engine.word == "ready")
        assert "dead" in watch.words
        assert children(daemon.pid)["worker"].pid != worker.pid
        await watch.run_to(columns.place.step + 2)
        await watch.standing(columns.place.step + 2)
