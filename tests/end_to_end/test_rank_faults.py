"""One of several ranks that is stopped, crashes or aborts: which one is named, none is left."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.events import EngineLost
from engine_daemon.recording.reader import Recording
from tests.daemons import wait_for
from tests.end_to_end.command import Line, Place, alive
from tests.worker.checkpoints import save_tiny

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("ranks")]

LOAD_S = 180.0


def engine(place: Place) -> Line:
    found: Line = place.status()["engine"]
    return found


def lost(place: Place, session: str) -> list[tuple[int, str | None, int | None]]:
    with Recording.open(place.recording(session)) as recording:
        events = [unpack_event(packed) for _, packed in recording.events()]
    return [(e.rank, e.signal, e.exit_code) for e in events if isinstance(e, EngineLost)]


def ended_by(place: Place, rank: int, number: signal.Signals, start: int) -> float:
    """End a rank so: all of this start go, and the next one comes up; the seconds until the last
    was gone."""
    pids = engine(place)["details"]["pids"]
    began = time.monotonic()
    os.kill(pids[rank], number)
    wait_for(lambda: not any(alive(pid) for pid in pids))
    gone = time.monotonic() - began
    wait_for(lambda: engine(place)["word"] == "ready" and engine(place)["engine"] == start, LOAD_S)
    return gone


@pytest.mark.fault("E2")
@pytest.mark.fault("E4")
def test_two_ranks_of_which_one_is_stopped_then_crashes(
    place: Place, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    folder = place.root / "config" / "llm-inspect"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('[daemon.default]\nstuck = "2s"\n')
    model = str(save_tiny(tmp_path / "tiny"))
    options = ("--model", model, "--tp", "2", "--device", "cpu", "--dtype", "fp32")
    session = str(
        place.json("run", *options, "--json", "--steps", "3", "--keep", "Hello")[-1]["session"]
    )

    pids = engine(place)["details"]["pids"]
    os.kill(pids[1], signal.SIGSTOP)
    try:
        place.start("step", session, "2")
        wait_for(lambda: (engine(place)["details"]["stuck"] or {}).get("ranks") == [1])
        assert engine(place)["word"] == "stuck"
        assert "rank 1 is halted (SIGSTOP)" in place.run("daemon", "status").out.decode()
        stacks = place.run("daemon", "stacks").out.decode()
        assert f"rank 1:\nis halted (SIGSTOP or a debugger): kill -CONT {pids[1]}" in stacks
        assert "rank 0:\n" in stacks
        assert "MainThread" in stacks
    finally:
        os.kill(pids[1], signal.SIGCONT)
    wait_for(lambda: engine(place)["word"] in ("ready", "busy"))
    wait_for(lambda: place.session(session)["place"]["step"] == 4)
    assert engine(place)["details"]["pids"] == pids

    crashed = ended_by(place, 1, signal.SIGSEGV, 2)
    place.run("step", session)  # this start of the engine has the session, too
    aborted = ended_by(place, 0, signal.SIGABRT, 3)
    record_property("figure", f"both gone {max(crashed, aborted):.2f} s after one at the most")
    assert lost(place, session) == [(1, "SIGSEGV", None), (0, "SIGABRT", None)]
    assert "at step 6" in place.run("step", session).out.decode()
