"""A real worker process with the scripted engine, driven over a real socket."""

import importlib.util
import signal
from itertools import pairwise

import pytest

from engine_daemon import __version__
from engine_daemon.protocol.events import Event, Predicted, Stepped, Stopped
from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.synthetic import EOS_ID
from engine_daemon.protocol.values import Sampler
from engine_daemon.protocol.worker import (
    ChildReady,
    Drop,
    DumpStacks,
    EngineOptions,
    EngineReady,
    EventOut,
    ForceId,
    Go,
    Halt,
    Load,
    LoadFailed,
    Located,
    Pieces,
    Progress,
    Resample,
    Stacks,
)
from tests.worker.checkpoints import demo_model
from tests.worker.conftest import PROMPT, WorkerUnderTest, opening

WINDOW = 64


def is_stop(event: Event) -> bool:
    return isinstance(event, Stopped)


def is_predicted(event: Event) -> bool:
    return isinstance(event, Predicted)


def shape(events: list[Event]) -> list[tuple[str, int]]:
    return [(type(event).__name__, event.step) for event in events]


def stops(events: list[Event]) -> list[str]:
    return [event.reason for event in events if isinstance(event, Stopped)]


def test_greets_then_loads_then_is_ready(worker: WorkerUnderTest) -> None:
    ready = worker.expect(ChildReady)
    assert (ready.role, ready.version, ready.pid) == ("worker", __version__, worker.process.pid)
    worker.send(Load(options=EngineOptions(backend="scripted", model="scripted:load_ms=150")))
    assert worker.expect(Located).model_dir == ""
    stages = [worker.expect(Progress).stage, worker.expect(Progress).stage]
    worker.send_pieces()
    engine = worker.expect(EngineReady)
    assert stages == ["import", "load"]
    assert engine.synthetic
    assert engine.backend == "scripted"
    assert engine.eos_ids == [EOS_ID]


def test_waits_for_the_table_of_pieces(worker: WorkerUnderTest) -> None:
    worker.start()
    worker.expect(Located)
    assert [worker.expect(Progress).stage for _ in range(2)] == ["import", "load"]
    assert worker.silent(0.2)
    worker.send_pieces()
    worker.expect(EngineReady)


@pytest.mark.parametrize(
    ("model", "code"),
    [("scripted:rat=1", "bad_arg"), ("scripted:load_fail=1", "model"), ("gpt2", "bad_arg")],
)
def test_says_why_loading_failed_and_leaves(worker: WorkerUnderTest, model: str, code: str) -> None:
    worker.start(model)
    failed = worker.expect(LoadFailed)
    assert failed.code == code
    assert "\n" not in failed.message
    assert worker.ended() == 3


def test_a_table_that_is_none_is_an_engine_error(worker: WorkerUnderTest) -> None:
    worker.start()
    worker.expect(Located)
    (worker.folder / "pieces.bin").write_bytes(b"nothing of the kind")
    worker.send(Pieces(path=str(worker.folder / "pieces.bin")))
    failed = worker.expect(LoadFailed)
    assert failed.code == "engine"
    assert worker.ended() == 3


def test_opening_gives_a_distribution_and_nothing_else(worker: WorkerUnderTest) -> None:
    worker.load()
    worker.send(opening(cause=b"o"))
    (first,) = worker.events_until(is_predicted)
    assert isinstance(first, Predicted)
    assert (first.step, first.position, first.processed) == (0, len(PROMPT), len(PROMPT))
    assert (first.phase, first.cause, first.tokenize_ms) == ("prefill", b"o", 0.25)
    assert first.restored is None
    assert not first.after_pause
    assert worker.silent(0.1)


def test_single_steps(worker: WorkerUnderTest) -> None:
    worker.load()
    worker.send(opening())
    worker.events_until(is_predicted)
    for step in range(3):
        worker.send(Go(session="s1", step=step + 1, cause=b"%d" % step))
        events = worker.events_until(is_stop)
        assert shape(events) == [("Stepped", step), ("Predicted", step + 1), ("Stopped", step + 1)]
        assert {event.cause for event in events} == {b"%d" % step}
        stepped, predicted, stopped = events
        assert isinstance(stepped, Stepped)
        assert stepped.stop is None
        assert isinstance(predicted, Predicted)
        assert predicted.after_pause
        assert predicted.phase == "decode"
        assert isinstance(stopped, Stopped)
        assert (stopped.reason, stopped.pending) == ("goal", True)


def test_runs_to_a_step_and_halts_on_the_way(worker: WorkerUnderTest) -> None:
    worker.load("scripted:rate=400")
    worker.send(opening())
    worker.events_until(is_predicted)
    worker.send(Go(session="s1", step=10))
    events = worker.events_until(is_stop)
    assert len(events) == 21
    assert [event.after_pause for event in events if isinstance(event, Predicted)] == (
        [True] + [False] * 9
    )
    worker.send(Go(session="s1", step=None, cause=b"go"))
    worker.events_until(lambda event: isinstance(event, Stepped) and event.step == 14)
    worker.send(Halt(session="s1", cause=b"halt"))
    events = worker.events_until(is_stop)
    last = events[-1]
    assert isinstance(last, Stopped)
    assert (last.reason, last.pending, last.cause) == ("pause", True, b"halt")
    assert isinstance(events[-2], Predicted)
    assert events[-2].step == last.step
    assert worker.silent(0.1)


def test_a_halt_while_idle_is_no_event(worker: WorkerUnderTest) -> None:
    worker.load()
    worker.send(opening())
    worker.events_until(is_predicted)
    worker.send(Halt(session="s1"), Go(session="s1", step=1))
    assert stops(worker.events_until(is_stop)) == ["goal"]


def test_forces_any_id(worker: WorkerUnderTest) -> None:
    worker.load()
    worker.send(opening())
    worker.events_until(is_predicted)
    worker.send(ForceId(session="s1", id=7, cause=b"f"))
    events = worker.events_until(is_stop)
    stepped = events[0]
    assert isinstance(stepped, Stepped)
    assert (stepped.id, stepped.how, stepped.draw, stepped.piece) == (7, "forced", None, b"\x07")
    assert stepped.rank > 1
    assert shape(events) == [("Stepped", 0), ("Predicted", 1), ("Stopped", 1)]
    worker.send(ForceId(session="s1", id=10**6))
    (refused,) = worker.events_until(is_stop)
    assert isinstance(refused, Stopped)
    assert (refused.reason, refused.pending) == ("error", True)


def test_another_sampler_without_a_forward(worker: WorkerUnderTest) -> None:
    worker.load()
    worker.send(opening())
    (first,) = worker.events_until(is_predicted)
    sampler = Sampler(greedy=False, top_k=2, seed=5)
    worker.send(Resample(session="s1", sampler=sampler, salt=1, cause=b"r"))
    (second,) = worker.events_until(is_predicted)
    assert isinstance(first, Predicted)
    assert isinstance(second, Predicted)
    assert second.cause == b"r"
    assert second.forward_ms == first.forward_ms
    assert second.candidates.logit == first.candidates.logit
    assert second.candidates.final_logprob != first.candidates.final_logprob
    worker.send(Go(session="s1", step=1))
    stepped = worker.events_until(is_stop)[0]
    assert isinstance(stepped, Stepped)
    assert stepped.how == "sampled"
    assert stepped.draw is not None


def test_end_of_text_spends_no_forward_and_can_be_passed(worker: WorkerUnderTest) -> None:
    worker.load(f"scripted:rate=0,eos_at={len(PROMPT) + 2}")
    worker.send(opening(), Go(session="s1", step=None))
    events = worker.events_until(is_stop)
    stepped, stopped = events[-2:]
    assert isinstance(stepped, Stepped)
    assert (stepped.step, stepped.id, stepped.stop, stepped.special) == (2, EOS_ID, "eos", True)
    assert isinstance(stopped, Stopped)
    assert (stopped.reason, stopped.step, stopped.pending) == ("eos", 3, False)
    worker.send(Go(session="s1", step=3))
    assert shape(worker.events_until(is_stop)) == [("Predicted", 3), ("Stopped", 3)]
    worker.send(Go(session="s1", step=5))
    assert stops(worker.events_until(is_stop)) == ["goal"]


def test_length_and_context(worker: WorkerUnderTest) -> None:
    worker.load()
    limit = len(PROMPT) + 4
    worker.send(opening(max_steps=2, limit_tokens=limit), Go(session="s1", step=None))
    events = worker.events_until(is_stop)
    assert shape(events)[-2:] == [("Stepped", 1), ("Stopped", 2)]
    assert stops(events) == ["length"]
    worker.send(Go(session="s1", step=None))
    events = worker.events_until(is_stop)
    assert shape(events)[-2:] == [("Stepped", 3), ("Stopped", 4)]
    assert stops(events) == ["context"]
    worker.send(Go(session="s1", step=None, cause=b"again"))
    (refused,) = worker.events_until(is_stop)
    assert isinstance(refused, Stopped)
    assert (refused.reason, refused.cause, refused.pending) == ("context", b"again", False)


def test_the_window_holds_the_engine_back(worker: WorkerUnderTest) -> None:
    worker.load()
    worker.acknowledge = False
    worker.send(opening(), Go(session="s1", step=None))
    worker.events_until(lambda event: event.step == 30)
    while not worker.silent(0.3):
        worker.expect(EventOut)
    assert WINDOW - 3 <= len(worker.log) <= WINDOW
    worker.acknowledge_all()
    worker.expect(EventOut)
    worker.acknowledge = True
    worker.acknowledge_all()
    worker.send(Halt(session="s1"))
    assert stops(worker.events_until(is_stop)) == ["pause"]


def test_a_halt_passes_a_full_window(worker: WorkerUnderTest) -> None:
    worker.load()
    worker.acknowledge = False
    worker.send(opening(), Go(session="s1", step=None))
    worker.events_until(lambda event: event.step == 30)
    worker.send(Halt(session="s1"))
    assert stops(worker.events_until(is_stop)) == ["pause"]


def test_a_single_step_waits_for_the_one_before_to_be_logged(worker: WorkerUnderTest) -> None:
    worker.load()
    worker.acknowledge = False
    worker.send(opening())
    worker.events_until(is_predicted)
    worker.send(Go(session="s1", step=1))
    worker.events_until(is_stop)
    worker.send(Go(session="s1", step=2))
    assert worker.silent(0.2)
    worker.acknowledge_all()
    assert stops(worker.events_until(is_stop)) == ["goal"]


def test_two_sessions_take_turns(worker: WorkerUnderTest) -> None:
    worker.load("scripted:rate=400")
    worker.send(opening("s1"), opening("s2", sampler=Sampler(greedy=False, seed=3)))
    worker.send(Go(session="s1", step=20), Go(session="s2", step=20))
    worker.events_until(is_stop)
    worker.events_until(is_stop)
    steps = [name for name, event in worker.log if isinstance(event, Stepped)]
    assert steps.count("s1") == steps.count("s2") == 20
    together = steps[steps.index("s2") : -1 - steps[::-1].index("s1")]
    assert all(a != b for a, b in pairwise(together))
    turns = [(name, event) for name, event in worker.log if isinstance(event, Predicted)]
    waits = [
        event.waited_ms
        for (before, _), (name, event) in pairwise(turns)
        if before != name and event.step > 1
    ]
    assert len(waits) > 20
    assert min(waits) > 0.0
    paths = {
        name: [e.id for n, e in worker.log if n == name and isinstance(e, Stepped)]
        for name in ("s1", "s2")
    }
    assert paths["s1"] != paths["s2"]


def test_a_dropped_session_is_gone_and_may_come_back(worker: WorkerUnderTest) -> None:
    worker.load()
    worker.send(opening(), Go(session="s1", step=4))
    events = worker.events_until(is_stop)
    ids = [event.id for event in events if isinstance(event, Stepped)]
    worker.send(Drop(session="s1"), Go(session="s1", step=5))
    worker.send(opening(ids=pack_ints("I", ids), restored=True, tokenize_ms=0.0))
    (again,) = worker.events_until(is_predicted)
    assert isinstance(again, Predicted)
    assert (again.step, again.phase, again.processed) == (4, "prefill", len(PROMPT) + 4)
    assert again.restored is not None
    assert (again.restored.method, again.restored.replayed) == ("prefill", len(PROMPT) + 4)
    last = events[-2]
    assert isinstance(last, Predicted)
    assert again.candidates == last.candidates


@pytest.mark.parametrize(
    ("fault", "reason"), [("no_memory_at", "no_memory"), ("error_at", "error")]
)
def test_one_session_fails_and_the_worker_lives(
    worker: WorkerUnderTest, fault: str, reason: str
) -> None:
    worker.load(f"scripted:rate=0,{fault}={len(PROMPT) + 3}")
    worker.send(opening("bad"), Go(session="bad", step=None, cause=b"go"))
    events = worker.events_until(is_stop)
    assert shape(events)[-2:] == [("Stepped", 2), ("Stopped", 3)]
    stopped = events[-1]
    assert isinstance(stopped, Stopped)
    assert (stopped.reason, stopped.pending, stopped.cause) == (reason, False, b"go")
    assert "script" in stopped.message
    assert (stopped.need_bytes is not None) == (reason == "no_memory")
    worker.send(opening("good", ids=pack_ints("I", [300] * 9)), Go(session="good", step=12))
    assert stops(worker.events_until(is_stop)) == ["goal"]
    worker.send(Go(session="bad", step=5))
    events = worker.events_until(is_stop)
    assert isinstance(events[0], Predicted)
    assert events[0].restored is not None
    assert stops(events) == ["goal"]


def test_stacks_are_given_at_any_time(worker: WorkerUnderTest) -> None:
    worker.start()
    worker.expect(Located)
    worker.send(DumpStacks(ask=1))
    assert worker.expect(Stacks).ask == 1
    worker.send_pieces()
    worker.expect(EngineReady)
    worker.send(DumpStacks(ask=2))
    answer = worker.expect(Stacks)
    assert answer.ask == 2
    assert "deathwatch" in answer.text
    assert "MainThread" in answer.text


def test_a_message_nobody_knows_is_passed_over(worker: WorkerUnderTest) -> None:
    worker.load()
    worker.send(Go(session="none", step=1))
    worker.send(opening(), Go(session="s1", step=1))
    assert stops(worker.events_until(is_stop)) == ["goal"]


def test_the_script_can_kill_the_worker(worker: WorkerUnderTest) -> None:
    worker.load(f"scripted:rate=0,crash_at={len(PROMPT) + 3}")
    worker.send(opening(), Go(session="s1", step=None))
    assert worker.ended() == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("where", ["idle", "load", "run", "hang"])
def test_leaves_promptly(worker: WorkerUnderTest, where: str, number: signal.Signals) -> None:
    _bring_to(worker, where)
    worker.signal(number)
    assert worker.ended(within_s=2.0) == -number


@pytest.mark.parametrize("where", ["start", "idle", "load", "run", "hang"])
@pytest.mark.fault("D2")
def test_dies_with_the_hub(worker: WorkerUnderTest, where: str) -> None:
    if where != "start":
        _bring_to(worker, where)
    worker.hang_up()
    assert worker.ended(within_s=2.0) != 0


@pytest.mark.engine
@pytest.mark.parametrize("after_s", [0.0, 0.7])
@pytest.mark.fault("D2")
def test_dies_with_the_hub_while_it_imports_torch(worker: WorkerUnderTest, after_s: float) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    worker.start(str(demo_model()), backend="hf")
    assert worker.expect(Progress).stage == "import"
    assert worker.silent(after_s)
    worker.hang_up()
    assert worker.ended(within_s=2.0) != 0


def _bring_to(worker: WorkerUnderTest, where: str) -> None:
    if where == "load":
        worker.start("scripted:load_ms=60000")
        worker.expect(Located)
        return
    worker.load("scripted:rate=10" if where == "run" else "scripted:rate=0,hang_at=6")
    if where != "idle":
        worker.send(opening(), Go(session="s1", step=None))
        worker.events_until(lambda event: isinstance(event, Stepped))
