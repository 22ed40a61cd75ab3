"""`run`, from its opening to every way it can end."""

import os
import signal
import time

import pytest

from engine_daemon.recording.reader import Recording
from tests.daemons import wait_for
from tests.end_to_end.command import SCRIPTED, Line, Place

SLOW = ("--engine", "scripted", "--model", "scripted:rate=40")

SHORT = ("--candidates", "2")
"""Lines so short that the pipe takes them while nobody reads."""


def of(lines: list[Line], event: str) -> list[Line]:
    return [line for line in lines if line["event"] == event]


def test_json_lines_in_order(place: Place) -> None:
    lines = place.json("run", *SCRIPTED, "--json", "--steps", "5", "Hello there")
    names = [line["event"] for line in lines]
    assert sorted(names[:2]) == ["prompt", "ready"]
    assert names[2:] == ["step"] * 5 + ["done"]
    steps, done = of(lines, "step"), lines[-1]
    assert [step["step"] for step in steps] == [0, 1, 2, 3, 4]
    assert [step["phase"] for step in steps] == ["prefill"] + ["decode"] * 4
    assert steps[-1]["stop"] == "length"
    assert done["reason"] == "length"
    assert done["at"] == {"step": 4, "pending": False}
    assert done["ids"] == [step["chosen"]["id"] for step in steps]
    joined = b"".join(bytes.fromhex(step["chosen"]["bytes"]) for step in steps)
    assert joined.decode() == done["text"]
    prompt = of(lines, "prompt")[0]
    assert "".join(bytes.fromhex(t["bytes"]).decode() for t in prompt["tokens"]) == "Hello there"
    assert len({line.get("session", done["session"]) for line in lines}) == 1
    for step in steps:
        assert len(step["candidates"]) == 20
        mass = sum(c["prob"] for c in step["candidates"]) + step["tail_prob"]
        assert mass == pytest.approx(1, abs=1e-6)


def test_text_is_the_continuation_and_nothing_else(place: Place) -> None:
    (done,) = of(place.json("run", *SCRIPTED, "--json", "--steps", "6", "Hello"), "done")
    plain = place.run("run", "--steps", "6", "Hello")
    assert plain.out.decode() == done["text"]
    echoed = place.run("run", "--steps", "6", "--echo", "Hello")
    assert echoed.out.decode() == "Hello" + done["text"]


def test_the_same_seed_gives_the_same_tokens(place: Place) -> None:
    words = ("run", *SCRIPTED, "--json", "--steps", "8", "--temperature", "1.5", "Hello")
    first = place.json(*words, "--seed", "11")
    again = place.json(*words, "--seed", "11")
    other = place.json(*words)
    assert first[-1]["ids"] == again[-1]["ids"] != other[-1]["ids"]
    assert of(first, "prompt")[0]["seed"] == 11
    assert of(other, "prompt")[0]["seed"] != 11
    assert {step["chosen"]["how"] for step in of(first, "step")} == {"sampled"}


def test_no_steps_at_all(place: Place) -> None:
    lines = place.json("run", *SCRIPTED, "--json", "--steps", "0", "Hello")
    assert [line["event"] for line in lines[-2:]] == ["pending", "done"]
    assert lines[-1]["at"] == {"step": 0, "pending": True}
    assert lines[-1]["ids"] == []
    assert "chosen" not in lines[-2]


def test_as_many_candidates_as_there_are_tokens(place: Place) -> None:
    lines = place.json("run", *SCRIPTED, "--json", "--steps", "1", "--candidates", "512", "Hi")
    (step,) = of(lines, "step")
    ready = of(lines, "ready")[0]
    assert len(step["candidates"]) == ready["model"]["vocabulary"] == 512
    assert sum(c["prob"] for c in step["candidates"]) == pytest.approx(1, abs=1e-6)
    order = [
        (-(c["logit"] if c["logit"] is not None else -1e9), c["id"]) for c in step["candidates"]
    ]
    assert order == sorted(order)


def test_end_of_sequence(place: Place) -> None:
    script = ("--engine", "scripted", "--model", "scripted:rate=0,eos_at=5")
    lines = place.json("run", *script, "--json", "Hi")
    assert lines[-1]["reason"] == "eos"
    assert of(lines, "step")[-1]["stop"] == "eos"
    assert of(lines, "step")[-1]["chosen"]["bytes"] == ""


def test_no_steps_says_what_was_read(place: Place) -> None:
    done = place.run("run", *SCRIPTED, "--steps", "0", "Hi")
    assert done.out == b""
    (line,) = [line for line in done.err.splitlines() if "nothing picked" in line]
    assert line.count(" %") == 5
    assert "nothing picked" not in place.run("run", "--steps", "1", "Hi").err


def test_a_session_is_closed_at_its_end_unless_kept(place: Place) -> None:
    closed = place.json("run", *SCRIPTED, "--json", "--steps", "2", "Hi")[-1]["session"]
    kept = place.run("run", "--json", "--steps", "2", "--keep", "Hi")
    session = kept.lines[-1]["session"]
    assert f"llm-inspect attach --session {session}" in kept.err
    listed = {row["session"]: row for row in place.json("sessions", "--json")}
    assert (listed[closed]["open"], listed[closed]["status"]) == (False, "closed")
    assert listed[closed]["step"] == 2
    assert (listed[session]["open"], listed[session]["status"]) == (True, "ended")


def test_a_recording_is_the_daemons_own_byte_for_byte(place: Place) -> None:
    file = place.root / "mine.lir"
    words = ("run", *SCRIPTED, "--json", "--steps", "3", "--record", str(file), "Hi")
    session = place.json(*words)[-1]["session"]
    assert file.read_bytes() == place.recording(session).read_bytes()
    with Recording.open(file) as recording:
        assert recording.state == "ok"
    assert "exists" in place.run(*words, code=2).err


def test_the_prompt_byte_for_byte_from_file_and_standard_input(place: Place) -> None:
    raw = "a\r\n\tb ß\n".encode()
    (place.cwd / "p").write_bytes(raw)
    for words, stdin in ((("--prompt-file", "p"), b""), (("-",), raw)):
        done = place.run("run", *SCRIPTED, "--json", "--steps", "0", *words, stdin=stdin)
        assert of(done.lines, "prompt")[0]["text"].encode() == raw


def test_interrupt_pauses_and_leaves_the_session_open(place: Place) -> None:
    run = place.start("run", *SLOW, "--json", "Hello")
    session = run.until("step", 3)["session"]
    run.send(signal.SIGINT)
    done = run.finish(130)
    last = done.lines[-1]
    assert last["event"] == "pending"
    assert f"llm-inspect attach --session {session}" in done.err
    now = place.session(session)
    assert now["status"] == "paused"
    assert now["place"]["step"] == last["step"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_at_any_moment_leaves_no_session_unnamed(
    place: Place, number: signal.Signals, code: int
) -> None:
    place.run("daemon", "start", *SLOW)
    known: set[str] = set()
    for delay in (0.3, 0.35, 0.4, 0.5, 0.7):
        run = place.start("run", "--json", *SHORT, "Hello")
        time.sleep(delay)  # into its start, wherever that is by now
        run.send(number)
        if run.process.wait(timeout=30) == -number:
            continue  # it was not there yet
        done = run.finish(code)
        for session in place.status()["sessions"]:
            if session["session"] not in known:
                known.add(session["session"])
                assert f"attach --session {session['session']}" in done.err
                assert session["status"] == "paused"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_termination_is_an_interrupt(place: Place, number: signal.Signals, code: int) -> None:
    run = place.start("run", *SLOW, "--json", "Hello")
    session = run.until("step", 3)["session"]
    run.send(number)
    done = run.finish(code)
    assert done.lines[-1]["event"] == "pending"
    assert f"llm-inspect attach --session {session}" in done.err
    assert place.session(session)["status"] == "paused"


def test_a_run_leaves_an_engine_that_does_not_move(place: Place) -> None:
    """The pause stays asked for: the session pauses when the engine wakes."""
    run = place.start("run", *SLOW, "--json", "Hello")
    session = run.until("step", 1)["session"]
    engine = place.status()["engine"]["pid"]
    os.kill(engine, signal.SIGSTOP)
    try:
        run.said("the run waits")
        run.send(signal.SIGTERM)
        assert f"llm-inspect attach --session {session}" in run.finish(143).err
    finally:
        os.kill(engine, signal.SIGCONT)
    wait_for(lambda: place.session(session)["status"] == "paused")


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_time_limit_holds_though_the_engine_does_not_move(place: Place, when: str) -> None:
    """Exit 124 with what is known; the session stands, its time over, when the engine wakes."""
    place.run("daemon", "start", *SLOW)
    engine = place.status()["engine"]["pid"]
    words = ("run", "--json", "--timeout", "3s", "Hello")
    if when == "before":
        os.kill(engine, signal.SIGSTOP)
    run = place.start(*words)
    try:
        if when == "during":
            run.until("step", 0)
            os.kill(engine, signal.SIGSTOP)
        done = run.finish(124)
    finally:
        os.kill(engine, signal.SIGCONT)
    last = done.lines[-1]
    assert (last["event"], last["code"]) == ("error", "timeout")
    assert last["message"].startswith("the --timeout of 3s is over, and the engine is halted")
    (session,) = [row["session"] for row in place.json("sessions", "--json")]
    assert f"llm-inspect attach --session {session}" in done.err
    wait_for(lambda: place.session(session)["status"] == "paused")


def test_a_run_that_was_suspended_goes_on_where_it_was(place: Place) -> None:
    """Past the heartbeats, as after Ctrl-Z: nothing is left out, whatever was decoded meanwhile."""
    steps = 480  # 12 s, of which it sleeps 9
    run = place.start("run", *SLOW, "--json", "--steps", str(steps), "Hello")
    run.until("step", 1)
    run.send(signal.SIGSTOP)
    time.sleep(9.0)
    run.send(signal.SIGCONT)
    lines = run.finish(0).lines
    assert [one["step"] for one in lines if one["event"] == "step"] == list(range(2, steps))
    assert lines[-1]["event"] == "done"


def test_a_run_whose_daemon_is_halted_says_so(place: Place) -> None:
    run = place.start("run", *SLOW, "--json", "Hello")
    run.until("step", 1)
    hub = place.status()["pid"]
    os.kill(hub, signal.SIGSTOP)
    try:
        said = run.finish(4).err
    finally:
        os.kill(hub, signal.SIGCONT)
    assert "the daemon default is halted (SIGSTOP or a debugger)" in said
    assert f"kill -CONT {hub} lets it go on" in said


def test_interrupt_of_a_paused_run(place: Place) -> None:
    run = place.start("run", *SLOW, "--json", *SHORT, "Hello")
    session = run.until("step", 1)["session"]
    place.run("pause", session)
    assert "paused by" in run.said("paused")
    run.send(signal.SIGINT)
    assert run.finish(130).lines[-1]["event"] == "pending"


def test_a_second_interrupt_leaves_at_once(place: Place) -> None:
    """Standard output is full and nobody reads it."""
    run = place.start("run", *SCRIPTED, "--json", "--candidates", "512", "Hello")
    session = run.until("step", 0)["session"]
    run.send(signal.SIGINT)
    wait_for(lambda: place.session(session)["status"] == "paused")
    run.send(signal.SIGINT)
    run.process.wait(timeout=10)
    run.finish(130)


def test_closed_standard_output_pauses_and_is_no_error(place: Place) -> None:
    run = place.start("run", *SLOW, "--json", "Hello")
    session = run.until("step", 0)["session"]
    assert run.process.stdout is not None
    run.process.stdout.close()
    assert f"--session {session}" in run.said("stays open")
    run.process.wait(timeout=30)
    assert run.process.returncode == 0
    assert place.session(session)["status"] == "paused"


def test_somebody_pauses_resumes_and_closes(place: Place) -> None:
    run = place.start("run", *SLOW, "--json", *SHORT, "Hello")
    session = run.until("step", 1)["session"]
    place.run("pause", session, "--as", "Ada")
    assert "paused by Ada" in run.said("paused")
    at = place.session(session)["place"]["step"]
    place.run("resume", session)
    run.until("step", at)
    place.run("pause", session)
    place.run("close", session)
    lines = run.finish(0).lines
    assert lines[-1]["reason"] == "user"
    assert lines[-1]["at"]["pending"] is True
    assert lines[-2]["event"] == "pending"


def test_whoever_closes_or_stops_it_is_told_as_an_end(place: Place) -> None:
    run = place.start("run", *SLOW, "--json", *SHORT, "Hello")
    session = run.until("step", 1)["session"]
    assert "lease held" in place.run("close", session, code=4).err
    place.run("pause", session)
    run.said("the run waits")
    place.run("close", session)
    assert "waits" not in run.finish(0).err
    run = place.start("run", *SLOW, "--json", *SHORT, "Hello")
    run.until("step", 1)
    place.run("daemon", "stop")
    said = run.finish(4).err
    assert "the daemon was stopped" in said
    assert "waits" not in said


def test_the_engine_dies(place: Place) -> None:
    run = place.start("run", *SLOW, "--json", "Hello")
    session = run.until("step", 2)["session"]
    os.kill(place.status()["engine"]["pid"], signal.SIGKILL)
    done = run.finish(5)
    assert done.lines[-1]["event"] == "error"
    assert done.lines[-1]["code"] == "engine_lost"
    assert f"--session {session}" in done.err
    steps = [line["step"] for line in of(done.lines, "step")]
    wait_for(lambda: place.status()["engine"]["word"] == "ready")
    now = place.session(session)
    assert now["status"] == "paused"
    assert now["place"]["step"] == steps[-1] + 1
    assert "stands" in place.run("step", session).out.decode()


def test_the_hub_dies_and_the_session_opens_again(place: Place) -> None:
    run = place.start("run", *SLOW, "--json", "Hello")
    session = run.until("step", 2)["session"]
    os.kill(place.status()["pid"], signal.SIGKILL)
    done = run.finish(4)
    assert done.lines[-1]["event"] == "error"
    assert f"--session {session}" in done.err
    shown = [line["step"] for line in of(done.lines, "step")]
    place.run("daemon", "start", "--engine", "scripted")
    assert place.session(session)["place"]["step"] >= shown[-1] + 1


@pytest.mark.parametrize(
    ("script", "code", "name"),
    [
        ("no_memory_at=8", 3, "no_memory"),
        ("error_at=8", 5, "error"),
        ("crash_at=8", 5, "engine_lost"),
    ],
)
def test_faults_of_the_engine(place: Place, script: str, code: int, name: str) -> None:
    words = ("--engine", "scripted", "--model", f"scripted:rate=100,{script}")
    done = place.run("run", *words, "--json", "Hello", code=code)
    assert done.lines[-1]["event"] == "error"
    assert done.lines[-1]["code"] == name
    assert len(of(done.lines, "step")) >= 1
    assert "stays open" in done.err


def test_somebody_takes_another_branch_and_comes_back(place: Place) -> None:
    run = place.start("run", *SLOW, "--json", *SHORT, "--steps", "60", "Hello")
    session = run.until("step", 4)["session"]
    place.run("pause", session)
    run.said("the run waits")  # it has given its lease back
    at = place.session(session)["place"]["step"]
    with place.terminal("attach", "--session", session) as screen:
        screen.until(f"step {at} pending")
        for back in (1, 2):
            screen.press("left")
            screen.until(f"NEXT TOKEN · step {at - back}")
        screen.press("tab")
        screen.until("enter force")
        screen.press("down")
        screen.until("▸  2")
        screen.press("enter")
        wait_for(lambda: place.session(session)["place"]["branch"] == 1)
        assert "branch 1; the run waits for branch 0" in run.said("somebody went")
        screen.until(f"step {at - 1} pending")
        screen.press("[")
        wait_for(lambda: place.session(session)["place"]["branch"] == 0)
        screen.until(f"step {at} pending")
        screen.press("q")
        screen.finish()
    place.run("resume", session)
    lines = run.finish(0).lines
    steps = of(lines, "step")
    assert [step["step"] for step in steps] == list(range(5, 60))
    assert {step["branch"] for step in steps} == {0}
    assert {step["chosen"]["how"] for step in steps} == {"greedy"}
    assert lines[-1]["reason"] == "length"


def test_a_private_run_leaves_no_recording_but_the_viewers_own(place: Place) -> None:
    own = place.root / "own.lir"
    lines = place.json(
        "run", *SCRIPTED, "--json", "--private", "--steps", "5", "--record", str(own), "Hello"
    )
    assert lines[-1]["event"] == "done"
    assert list((place.root / "state").rglob("*.lir")) == []
    assert own.stat().st_size > 0
    assert "no sessions yet" in place.run("sessions", "list").out.decode()


def test_closing_a_private_session_does_not_promise_a_recording(place: Place) -> None:
    run = place.run("run", *SCRIPTED, "--json", "--private", "--keep", "--steps", "2", "Hello")
    closed = place.run("close", run.lines[-1]["session"]).out.decode()
    assert "its recording is gone" in closed
    assert not list(place.root.rglob("*.lir"))
