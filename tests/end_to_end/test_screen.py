"""The real command in a real terminal."""

import os
import re
import signal
import sys

import psutil
import pytest

from tests.daemons import wait_for
from tests.end_to_end.command import COMMAND, SCRIPTED, Place, alive
from tests.end_to_end.terminal import Terminal

pytestmark = pytest.mark.terminal


def test_step_force_quit_and_come_back(place: Place) -> None:
    with place.terminal(*SCRIPTED, "Hello pods are") as screen:
        for wanted in ("step 0 pending", "SYNTHETIC", "Hello␣pods␣are"):
            screen.until(wanted)
        for step in (1, 2, 3):
            screen.press("s")
            screen.until(f"step {step} pending")
        (session,) = place.status()["sessions"]
        assert session["place"]["step"] == 3
        assert session["status"] == "paused"
        # The second candidate by hand: to NEXT TOKEN, one down, enter.
        screen.press("tab")
        screen.until("enter force")
        screen.press("down")
        screen.until("▸  2")
        screen.press("enter")
        screen.until("step 4 pending")
        screen.until("forced")
        screen.press("q")
        last = screen.finish()
    come_back = re.search(r"llm-inspect (attach --session [0-9A-Z]{8})", last)
    assert come_back is not None
    with place.terminal(*come_back[1].split()) as screen:
        for wanted in ("step 4 pending", "Hello␣pods␣are", "forced"):
            screen.until(wanted)
        screen.press("s")
        screen.until("step 5 pending")
        screen.press("q")
        screen.finish()
    (now,) = place.status()["sessions"]
    assert (now["session"], now["place"]["step"]) == (session["session"], 5)


def test_another_path_from_a_recorded_step_and_back(place: Place) -> None:
    with place.terminal(*SCRIPTED, "Hello pods are") as screen:
        screen.until("step 0 pending")
        for step in (1, 2, 3, 4):
            screen.press("s")
            screen.until(f"step {step} pending")
        # Two steps back, the second candidate there.
        screen.press("SS")
        screen.until("step 2 of 4")
        screen.press("R")
        screen.until("of 1000")
        screen.press("\x1b")
        screen.until("final")
        screen.press("\t")
        screen.until("enter force")
        screen.press("j\r")
        screen.until("branch 1 (2 branches)")
        screen.until("step 3 pending")
        screen.press("[")
        screen.until("branch 0 (2 branches)")
        screen.until("step 4 pending")
        screen.press("C")
        screen.until("step 4 is computed again")
        screen.press("s")
        screen.until("step 5 pending")
        screen.press("q")
        screen.finish()
    (session,) = place.status()["sessions"]
    assert (session["place"]["branch"], session["place"]["step"]) == (0, 5)


def test_termination_gives_the_terminal_back(place: Place) -> None:
    with place.terminal(*SCRIPTED, "Hello") as screen:
        screen.until("step 0 pending")
        screen.process.send_signal(signal.SIGTERM)
        assert "attach --session" in screen.finish(143)
        for left in (b"\x1b[?1049l", b"\x1b[?1000l"):
            assert left in screen.output


def test_run_and_pause(place: Place) -> None:
    with place.terminal("--engine", "scripted", "Hello") as screen:
        screen.until("step 0 pending")
        screen.press("space")
        wait_for(lambda: place.status()["sessions"][0]["status"] == "running")
        screen.press("space")
        wait_for(lambda: place.status()["sessions"][0]["status"] == "paused")
        step = place.status()["sessions"][0]["place"]["step"]
        screen.until(f"step {step} pending")
        screen.press("q")
        screen.finish()


@pytest.mark.pitfall("P38")
def test_a_plot_on_the_terminal_changes_as_steps_come(place: Place) -> None:
    """What was drawn anew is also sent: nobody touches a key or the size meanwhile."""

    def dots(picture: str) -> int:
        return picture.partition("COST PER STEP")[2].count("•")

    with place.terminal("--engine", "scripted", "--model", "scripted:rate=100", "Hello") as screen:
        screen.until("step 0 pending")
        screen.press("space")
        few = dots(screen.until(lambda picture: dots(picture) >= 5))
        screen.until(lambda picture: dots(picture) >= few + 10)
        screen.press("space")
        screen.until("PAUSED")
        screen.press("q")
        screen.finish()


def test_what_draws_the_plot_is_loaded_before_there_is_one(place: Place) -> None:
    """The key of the first step does not wait for it."""
    with place.terminal(*SCRIPTED, "Hello pods are") as screen:
        screen.until("step 0 pending")
        viewer = psutil.Process(screen.process.pid)
        wait_for(lambda: any("plotext" in part.path for part in viewer.memory_maps()))
        screen.until("Steps after the first one")
        screen.press("q")
        screen.finish()


def test_without_a_prompt_the_most_recent_session(place: Place) -> None:
    place.run("run", *SCRIPTED, "--steps", "2", "--keep", "Older one")
    place.run("run", "--steps", "2", "--keep", "Newer one")
    with place.terminal() as screen:
        screen.until("Newer␣one")
        screen.press("q")
        screen.finish()


def test_without_any_session(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    with place.terminal() as screen:
        screen.until("prompt")
        screen.press("q")
        screen.finish()


@pytest.mark.fault("T4")
@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (40, 12), (20, 5)])
def test_small_terminals(place: Place, columns: int, lines: int) -> None:
    with place.terminal(*SCRIPTED, "Hello", columns=columns, lines=lines) as screen:
        screen.until("step 0")
        screen.until("%")  # its distribution has come: a key before that would find nothing to step
        screen.press("s")
        wait_for(lambda: place.status()["sessions"][0]["place"]["step"] == 1)
        screen.press("q")
        screen.finish()


def test_another_size_while_it_runs(place: Place) -> None:
    with place.terminal(*SCRIPTED, "Hello") as screen:
        screen.until("step 0 pending")
        for columns, lines in ((80, 24), (20, 5), (121, 41)):
            screen.resize(columns, lines)
        screen.until("COST PER STEP")
        screen.press("q")
        screen.finish()


def test_the_engine_dies_while_one_looks(place: Place) -> None:
    with place.terminal(*SCRIPTED, "Hello") as screen:
        screen.until("step 0 pending")
        screen.press("s")
        screen.until("step 1 pending")
        pid = place.status()["engine"]["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not alive(pid))
        wait_for(lambda: place.status()["engine"]["word"] == "ready")
        screen.press("s")
        screen.until("step 2 pending")
        screen.press("q")
        screen.finish()


def test_attach_needs_a_daemon_and_a_session(place: Place) -> None:
    with place.terminal("attach") as screen:
        assert "no daemon named default is running" in screen.finish(4)
    place.run("daemon", "start", *SCRIPTED)
    with place.terminal("attach", "--session", "ZZZ") as screen:
        assert "no session 'ZZZ'" in screen.finish(2)


@pytest.mark.fault("T4")
def test_no_screen_in_a_dumb_terminal(place: Place) -> None:
    place.env["TERM"] = "dumb"
    with place.terminal("Hello world") as screen:
        assert "TERM=dumb has no screen" in screen.finish(2)
    assert list(place.connections()) == []


@pytest.mark.fault("T3", "S9")
def test_hostile_tokens_reach_the_terminal_as_pictures(place: Place) -> None:
    """Only sequences that harmless text brings too; the title and the clipboard stay ours."""

    def sequences(prompt: str) -> set[bytes]:
        with place.terminal(*SCRIPTED, prompt) as screen:
            screen.until("step 0 pending")
            screen.press("s")
            screen.until("step 1 pending")
            screen.press("q")
            screen.finish()
            return {
                found[0] if found[0][:2] == b"\x1b]" else found[0][:2] + found[0][-1:]
                for found in re.finditer(
                    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*|[@-Z\\-_])", screen.output
                )
            }

    harmless = sequences("Hello 0;owned and 52;c;aGk= there")
    hostile = sequences("Hello \x1b]0;owned\x07 and \x1b]52;c;aGk=\x07 \x9b31m\x1b[5mthere")
    assert hostile - harmless == set()


def test_it_leaves_when_its_terminal_is_gone_though_hangups_are_ignored(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    words = [sys.executable, "-c", ignoring, str(COMMAND), "attach"]
    with Terminal(words, place.env, place.cwd) as terminal:
        terminal.until("SEQUENCE")
        terminal.hang_up()
        assert terminal.process.wait(timeout=20) == 129


def test_a_terminal_that_nobody_sized_gets_the_usual_size(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    with place.terminal("attach", columns=80, lines=24, sized=False) as screen:
        screen.until("SEQUENCE")
        screen.press("q")
        screen.finish()
        assert len(screen.output) < 200_000


def test_leaving_while_it_starts_says_nothing_of_the_inside(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    place.run("run", *SCRIPTED, "--steps", "2", "--keep", "Hello")
    for _ in range(4):
        with place.terminal("attach") as screen:
            screen.until(lambda picture: bool(picture.strip()))
            screen.press("q")
            left = screen.finish()
            assert "Traceback" not in left
            assert "Warning" not in left
            assert "callback" not in left


def test_a_key_and_what_is_typed_for_its_dialog_may_come_together(place: Place) -> None:
    with place.terminal(*SCRIPTED, "Hello") as screen:
        screen.until("step 0 pending")
        for k in range(3):
            screen.press(f"mxenon {k}")  # x, n and digits are keys of their own elsewhere
            screen.until(f"xenon {k}")
            screen.press("enter")
            screen.until(lambda picture: "NOTE ─" not in picture)
        (recording,) = place.root.rglob("*.lir")
        wait_for(lambda: all(b"xenon %d" % k in recording.read_bytes() for k in range(3)))
        screen.press("bstep=3")
        screen.until("step=3")
        screen.press("enter")
        screen.until(lambda picture: "BREAKPOINTS" not in picture)
        screen.press("b")
        screen.until("1  step=3")


def test_keys_that_come_together_are_acted_on_in_their_order(place: Place) -> None:
    """As over a slow link: what is bound would come after what is text."""
    left, backspace, tab = "\x1b[D", "\x7f", "\t"
    with place.terminal(*SCRIPTED, "Hello") as screen:
        screen.until("step 0 pending")
        for _ in range(3):
            screen.press(f"ben{backspace}tr{left}{left}X{left}Y")
            screen.until("eYXtr")
            screen.press("escape")
            screen.until(lambda picture: "BREAKPOINTS" not in picture)
            screen.press(f"p {tab}0.8{tab}5")
            screen.until(lambda picture: re.search(r"temperature +0\.8 ", picture) is not None)
            screen.until(lambda picture: re.search(r"top-k +5 ", picture) is not None)
            screen.press("escape")
            screen.until(lambda picture: "temperature" not in picture)
        screen.press("sss")
        screen.until("step 3 pending")


def test_a_screen_outlives_its_daemon_and_names_what_brings_it_back(place: Place) -> None:
    with place.terminal(*SCRIPTED, "Hello pods are") as screen:
        screen.until("step 0 pending")
        place.run("daemon", "stop", "--yes")
        screen.until("llm-inspect daemon start brings it back")
        screen.press("s")
        screen.until("not sent")
        place.run("daemon", "start", *SCRIPTED)
        screen.until(lambda picture: "LINK LOST" not in picture and "step 0 pending" in picture)
        screen.press("s")
        screen.until("step 1 pending")
