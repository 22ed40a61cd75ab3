"""What a rank says of what it is at."""

import threading

from engine_daemon.protocol.liveness import Alive
from engine_daemon.protocol.worker import Go
from engine_daemon.worker.pulse import Pace, Pulse, stacks
from tests.worker.conftest import PROMPT, WorkerUnderTest, opening


def test_what_an_operation_may_take_comes_from_those_before() -> None:
    pace = Pace()
    assert pace.expected("prefill", 512) is None
    pace.took("decode", 1, 0.02)
    alone = pace.expected("decode", 1)
    chunk = pace.expected("prefill", 512)
    assert alone is not None
    assert chunk is not None
    assert abs(alone - 0.02) < 1e-9
    assert chunk > 512 * 0.02  # each read alone, for want of better
    pace.took("prefill", 512, 1.0)
    assert abs((pace.expected("prefill", 512) or 0) - 1.0) < 1e-9
    long = pace.expected("prefill", 8192)
    assert long is not None
    assert long > 16  # attention grows with the square
    for _ in range(20):
        pace.took("decode", 1, 0.01)
    assert abs((pace.expected("decode", 1) or 0) - 0.01) < 1e-9


def test_the_counter_moves_with_what_is_done() -> None:
    pulse = Pulse(3)
    assert (pulse.alive().phase, pulse.alive().rank) == ("loading", 3)
    before = pulse.alive().counter
    pulse.beat()
    assert (pulse.alive().phase, pulse.alive().counter) == ("loading", before + 1)
    with pulse.during("decode"):
        assert (pulse.alive().phase, pulse.alive().expected_s) == ("decode", None)
    assert pulse.alive().phase == "idle"
    with pulse.during("decode"):
        assert pulse.alive().expected_s is not None
    with pulse.during("read", known=False):
        assert pulse.alive().expected_s is None


def test_a_worker_in_a_forward_that_never_ends_says_so(worker: WorkerUnderTest) -> None:
    worker.load(f"scripted:rate=0,hang_at={len(PROMPT) + 3}")
    worker.send(opening(), Go(session="s1", step=None))

    def hangs() -> list[Alive]:
        return [one for one in worker.alive if one.phase == "decode" and one.for_s > 1.0]

    while not hangs():
        worker.silent(1.0)
        worker._waiting.clear()
    (last, *_) = hangs()
    assert (last.rank, last.pid) == (0, worker.process.pid)
    assert last.expected_s is not None


def test_stacks_begin_with_the_main_thread_and_where_it_is() -> None:
    done = threading.Event()
    others = [
        threading.Thread(target=done.wait, name=name, daemon=True)
        for name in ("deathwatch", "pulse", "zzz-loader")
    ]
    for thread in others:
        thread.start()
    try:
        text = stacks()
    finally:
        done.set()
        for thread in others:
            thread.join()
    heads = [line.split(",")[0] for line in text.splitlines() if "innermost first:" in line]
    assert heads[0] == "MainThread"
    assert heads.index("zzz-loader") < heads.index("deathwatch") < heads.index("pulse")
    lines = text.splitlines()
    assert "in stacks" in lines[1]
