"""What can be done with recordings: going on with one, and the verbs of `sessions`."""

import itertools
import json
import os
import signal
import tempfile
from pathlib import Path

import pytest

from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.events import Closed, EngineStarted, Event, Opened, SessionSet
from engine_daemon.recording.format import frame
from engine_daemon.recording.reader import Recording
from engine_daemon.recording.writer import LogWriter
from tests.end_to_end.command import SCRIPTED, Line, Place
from tests.export.samples import samples
from tests.recording import logs

RUN = ("run", *SCRIPTED, "--json", "--temperature", "0.9", "--seed", "5", "Once upon a time")


def ids(lines: list[Line]) -> list[int]:
    return [line["chosen"]["id"] for line in lines if line["event"] == "step"]


def steps_of(path: Path) -> list[int]:
    with Recording.open(path) as recording:
        return recording.columns().ids.tolist()


def opened(place: Place, *words: str) -> str:
    """`open FILE`, and the session it became."""
    done = place.run("open", *words)
    return done.out.split()[0].decode()


def test_a_recording_goes_on_to_the_text_of_an_undisturbed_run(place: Place) -> None:
    whole = ids(place.run(*RUN, "--steps", "20").lines)
    first = place.run(*RUN, "--until", "step=8", "--record", "a.lir")
    assert ids(first.lines) == whole[:8]
    before = (place.cwd / "a.lir").read_bytes()
    done = place.run("open", "a.lir")
    session = done.out.split()[0].decode()
    assert session != first.lines[-1]["session"]
    assert f"{session} is open, paused at step 8" in done.out.decode()
    assert f"attach --session {session}" in done.err
    place.run("step", session, "12")
    assert steps_of(place.recording(session)) == whole
    # The file it came from is as it was; the copy says where it is from.
    assert (place.cwd / "a.lir").read_bytes() == before
    with (
        Recording.open(place.recording(session)) as copy,
        Recording.open(place.cwd / "a.lir") as given,
    ):
        assert copy.opened is not None
        assert given.opened is not None
        assert (copy.opened.session, copy.opened.origin) == (session, given.opened.session)
        assert list(copy.events(1))[: len(given) - 1] == list(given.events(1))


def test_a_closed_session_of_this_daemon_is_taken_up_as_itself(place: Place) -> None:
    lines = place.run(*RUN, "--steps", "6").lines
    session = lines[-1]["session"]
    assert place.status()["sessions"] == []
    assert opened(place, session.lower()[:6]) == session
    assert place.session(session)["status"] == "ended"
    assert opened(place, str(place.recording(session))) == session
    place.run("step", session, "3")
    assert len(steps_of(place.recording(session))) == 8
    place.run("close", session)
    place.run("daemon", "restart", *SCRIPTED)
    assert place.status()["sessions"] == []
    assert opened(place, session) == session


def test_one_of_another_model_is_history(place: Place) -> None:
    place.run(*RUN, "--steps", "6", "--record", "a.lir")
    place.run("daemon", "restart", "--engine", "scripted", "--model", "scripted:rate=0,vocab=777")
    session = opened(place, "a.lir")
    assert place.session(session)["other_model"]
    refused = place.run("step", session, code=4)
    assert "made with another model" in refused.err
    with place.terminal("attach", columns=160) as terminal:
        terminal.until("READ-ONLY")
        terminal.press(" ")
        terminal.until("this session was made with another model; its history is read-only here")
    assert len(steps_of(place.recording(session))) == 6


def cut_before(raw: bytes, kind: type[Event]) -> bytes:
    """The beginning of a recording, up to its first event of this kind."""
    with tempfile.NamedTemporaryFile(suffix=".lir") as file:
        file.write(raw)
        file.flush()
        with Recording.open(Path(file.name)) as recording:
            before = itertools.takewhile(
                lambda one: not isinstance(unpack_event(one[1]), kind), recording.events()
            )
            return b"".join(frame(seq, packed) for seq, packed in before)


def test_one_whose_prompt_the_model_cannot_read_says_so(place: Place) -> None:
    """It ends before it says which model it was made with."""
    (place.cwd / "ids.json").write_text("[7, 550]")
    wide = ("--engine", "scripted", "--model", "scripted:vocab=600")
    place.run("run", *wide, "--prompt-ids", "ids.json", "--steps", "2", "--record", "wide.lir")
    begun = cut_before((place.cwd / "wide.lir").read_bytes(), EngineStarted)
    (place.cwd / "begun.lir").write_bytes(begun)
    place.run("daemon", "restart", "--model", "scripted")
    refused = place.run("open", "begun.lir", code=4)
    assert "the prompt has the id 550; the model's vocabulary ends at" in refused.err
    assert "did not stay open" not in refused.err


def test_a_cut_one_goes_on_from_what_is_sound_and_a_damaged_one_does_not(place: Place) -> None:
    whole = ids(place.run(*RUN, "--steps", "12", "--record", "a.lir").lines)
    raw = (place.cwd / "a.lir").read_bytes()
    (place.cwd / "cut.lir").write_bytes(raw[: len(raw) * 2 // 3])
    cut = place.run("open", "cut.lir")
    assert "a torn event" in cut.err
    session = cut.out.split()[0].decode()
    place.run("step", session, "2")
    went_on = steps_of(place.recording(session))
    assert 2 < len(went_on) < 12
    assert went_on == whole[: len(went_on)]
    broken = bytearray(raw)
    broken[len(raw) // 2] ^= 1
    (place.cwd / "damaged.lir").write_bytes(bytes(broken))
    refused = place.run("open", "damaged.lir", code=4)
    assert "cannot be continued" in refused.err
    assert "llm-inspect replay damaged.lir" in refused.err
    begun = cut_before(raw, SessionSet)
    (place.cwd / "begun.lir").write_bytes(begun)
    refused = place.run("open", "begun.lir", code=4)
    assert "begun.lir cannot be continued: it ends before its prompt" in refused.err
    for kind, code in (("nothing.lir", 2), ("x.lir", 6)):
        (place.cwd / "x.lir").write_bytes(b"GIF89a")
        place.run("open", kind, code=code)


def test_on_a_terminal_the_screen_shows_it(place: Place) -> None:
    place.run(*RUN, "--until", "step=5", "--record", "a.lir")
    with place.terminal("open", "a.lir") as terminal:
        terminal.until("NEXT TOKEN · step 5")
        terminal.press("s")
        terminal.until("NEXT TOKEN · step 6")
        terminal.press("q")
        assert "The session goes on" in terminal.finish()


# sessions ----------------------------------------------------------------------------------------


def test_show_says_what_there_is(place: Place) -> None:
    session = place.run(*RUN, "--steps", "6").lines[-1]["session"]
    told = place.run("sessions", "show", session[:4]).out.decode()
    assert "steps          6" in told
    assert "stopped by     length" in told
    (facts,) = place.json("sessions", "show", session, "--json")
    assert facts["session"] == session
    assert (facts["steps"], facts["branches"], facts["recording"]) == (6, 1, "ok")
    assert facts["engine"] == "scripted"
    assert facts["file"] == str(place.recording(session))
    assert facts["bytes"] == place.recording(session).stat().st_size
    assert f"kept{' ' * 11}no" in told
    assert "no session 'nope'" in place.run("sessions", "show", "nope", code=2).err


def test_a_session_that_the_daemon_has_open_lacks_no_end(place: Place) -> None:
    session = place.run(*RUN, "--steps", "0", "--keep").lines[-1]["session"]
    shown = place.run("sessions", "show", session)
    assert "recording      open" in shown.out.decode()
    assert "stopped by     a step that was asked for" in shown.out.decode()
    assert shown.err == ""
    (facts,) = place.json("sessions", "show", session, "--json")
    assert (facts["kept"], facts["stopped_by"]) == (False, "goal")
    told = f"{session}.lir: its session is still open; this is what it holds now\n"
    for name in (session, str(place.recording(session))):
        assert place.run("export", name, "--to", "text").err == told
    again = place.run("open", session)
    assert again.out.decode().startswith(f"{session} is open, ")
    assert again.err.startswith(f"{session} is open already; it stays as it is\n")
    halted = place.status()["pid"]
    os.kill(halted, signal.SIGSTOP)  # who has it open is the system's word, not the daemon's
    try:
        assert place.run("export", session, "--to", "text").err == told
    finally:
        os.kill(halted, signal.SIGCONT)
    with place.terminal("replay", session) as terminal:
        terminal.until("▶ REPLAY")
        terminal.press("q")
        assert "has no end" not in terminal.finish()
    kept = place.cwd / "copy.lir"
    kept.write_bytes(place.recording(session).read_bytes())
    assert "it has no end" in place.run("export", "copy.lir", "--to", "text").err
    with place.terminal("replay", "copy.lir") as terminal:
        terminal.until("▶ REPLAY")
        terminal.press("q")
        assert "has no end" in terminal.finish()


def test_a_run_that_is_refused_leaves_no_recording(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    for words in (
        ("--until", 'token="qx"', "Hi"),
        ("--watch", " of life", "Hi"),
        ("--max-context", "2", "Hello"),
    ):
        place.run("run", *words, code=2)
    assert place.json("sessions", "list", "--json") == []
    assert list((place.root / "state").rglob("*.lir")) == []
    place.run("daemon", "restart")
    assert place.status()["sessions"] == []


def test_rename_an_open_session_and_a_closed_one(place: Place) -> None:
    closed = place.run(*RUN, "--steps", "3").lines[-1]["session"]
    open_ = place.run(*RUN, "--steps", "3", "--keep").lines[-1]["session"]
    for session in (closed, open_):
        place.run("sessions", "rename", session, f"the {session} one")
    listed = {row["session"]: row for row in place.json("sessions", "list", "--json")}
    assert listed[closed]["title"] == f"the {closed} one"
    assert listed[open_]["title"] == f"the {open_} one"
    assert (listed[closed]["status"], listed[closed]["open"]) == ("closed", False)
    with Recording.open(place.recording(closed)) as recording:
        assert recording.state == "ok"
        last = unpack_event(recording.event(recording.next - 1) or b"")
        assert isinstance(last, Closed)
        assert (last.by, last.count) == ("run", recording.next - 1)
    place.run("daemon", "restart", *SCRIPTED)
    assert [row["session"] for row in place.status()["sessions"]] == [open_]
    assert place.status()["sessions"][0]["title"] == f"the {open_} one"
    place.run("sessions", "show", f"the {closed} one")
    assert "1 to 200 characters" in place.run("sessions", "rename", closed, " ", code=2).err


def test_rm_removes_what_nobody_holds(place: Place) -> None:
    closed = place.run(*RUN, "--steps", "3").lines[-1]["session"]
    open_ = place.run(*RUN, "--steps", "3", "--keep").lines[-1]["session"]
    assert "is open" in place.run("sessions", "rm", open_, code=2).err
    place.run("sessions", "rm", closed)
    assert [row["session"] for row in place.json("sessions", "list", "--json")] == [open_]
    place.run("sessions", "show", closed, code=2)


def test_close_by_the_other_name(place: Place) -> None:
    session = place.run(*RUN, "--steps", "3", "--keep").lines[-1]["session"]
    assert f"{session} is closed" in place.run("sessions", "close", session).out.decode()
    assert place.status()["sessions"] == []


@pytest.mark.parametrize("words", [("show",), ("rename", "X"), ("rm",), ("close",), ("keeep", "X")])
def test_wrong_usage(place: Place, words: tuple[str, ...]) -> None:
    assert "Traceback" not in place.run("sessions", *words, code=2).err


def test_a_recording_that_is_written_is_not_renamed_by_hand(place: Place) -> None:
    path = samples(place.cwd)["open"]
    with Recording.open(path) as recording:
        assert isinstance(unpack_event(recording.event(0) or b""), Opened)
    log = LogWriter.reopen(path)
    folder = next(iter((place.root / "state").rglob("recordings")), None)
    if folder is None:
        place.run(*RUN, "--steps", "1")
        folder = next(iter((place.root / "state").rglob("recordings")))
    held = folder / "7ZK3M9QP.lir"
    log.close()
    path.rename(held)
    log = LogWriter.reopen(held)
    assert "another daemon is writing it" in place.run("sessions", "rm", held.stem, code=4).err
    assert "another daemon" in place.run("sessions", "rename", held.stem, "x", code=4).err
    log.close()
    place.run("sessions", "rename", held.stem, "x")
    (facts,) = place.json("sessions", "show", held.stem, "--json")
    assert facts["title"] == "x"
    assert json.dumps(facts)


def test_a_forged_recording_does_not_end_the_daemon(place: Place) -> None:
    """Sound frames, but steps without a prompt: nothing can go on from there."""
    steps = [event for k in range(3) for event in (logs.predicted(k), logs.stepped(k, piece=b"A"))]
    events = [logs.opened(), logs.session_set(), *steps, logs.predicted(3), logs.stopped(3)]
    logs.write_log(place.cwd / "forged.lir", events)
    place.run("daemon", "start", *SCRIPTED)
    pid = place.status()["pid"]
    assert "steps and no prompt" in place.run("open", "forged.lir", code=4).err
    assert place.status()["pid"] == pid
    place.run("run", *SCRIPTED, "--steps", "2", "Hello")


def test_a_title_is_one_line(place: Place) -> None:
    session = place.run(*RUN, "--steps", "1").lines[-1]["session"]
    done = place.run("sessions", "rename", session, "two\nlines\n")
    assert done.out.decode() == f"{session} is called two lines\n"
    (row,) = place.json("sessions", "list", "--json")
    assert row["title"] == "two lines"


def test_a_recording_that_is_cut_is_told_when_it_happens(place: Place) -> None:
    """The run goes on for hours, perhaps."""
    slow = ("--engine", "scripted", "--model", "scripted:rate=40")
    run = place.start("run", *slow, "--json", "--record", "/dev/full", "Hello")
    told = run.said("is cut at event 0: No space left on device")
    assert "the run goes on" in told
    assert run.until("step", 3)
    run.send(signal.SIGINT)
    assert "The daemon's own recording is whole" in run.finish(130).err
    done = place.run("run", *slow, "--steps", "2", "--record", "/dev/full", "Hello", code=4)
    assert done.err.count("is cut at event 0") == 2  # when it happened, and as the error
