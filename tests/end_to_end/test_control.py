"""One-shot commands on a session."""

import signal

import pytest

from tests.daemons import wait_for
from tests.end_to_end.command import SCRIPTED, Place

ENDLESS = ("--engine", "scripted", "--model", "scripted:rate=20,context=100000")


@pytest.fixture
def session(place: Place) -> str:
    """A session that stands at step 0."""
    lines = place.json("run", *SCRIPTED, "--json", "--keep", "--steps", "0", "Hello")
    return str(lines[-1]["session"])


def test_step_force_and_close(place: Place, session: str) -> None:
    assert f"{session} stands at step 1" in place.run("step", session).out.decode()
    assert "at step 4" in place.run("step", session[:4].lower(), "3").out.decode()
    forced = place.run("force", session, "--text", " before").out.decode()
    assert "at step 5" in forced
    assert "' before'" in forced
    assert "at step 6" in place.run("force", session, "--id", "300").out.decode()
    assert "at step 9" in place.run("force", session, "--text", "xyz").out.decode()
    assert "closed" in place.run("close", session).out.decode()
    place.run("sessions", "rename", session, "an ended one")
    other = place.run("run", *SCRIPTED, "--steps", "1", "--json", "--keep", "Hi").lines[-1][
        "session"
    ]
    for words in (
        *((one, session) for one in ("step", "pause", "resume", "close")),
        ("sessions", "close", session[:5].lower()),
        ("force", "an ended one", "--id", "5"),
    ):
        said = place.run(*words, code=2).err.splitlines()
        assert said == [
            f"llm-inspect: {session} is closed",
            f"Go on with it: llm-inspect open {session}",
        ]
    assert f"Open: {other}" in place.run("step", "NOSUCH", code=2).err
    with place.terminal("attach", "--session", session) as screen:
        assert f"open {session}" in screen.finish(2)
    place.run("open", session)
    assert "stands at step" in place.run("step", session).out.decode()


def test_after_a_restart_each_waits_for_its_own_outcome(place: Place, session: str) -> None:
    place.run("daemon", "restart")
    assert f"{session} stands at step 0" in place.run("pause", session).out.decode()
    assert f"{session} stands at step 2" in place.run("step", session, "2").out.decode()
    place.run("daemon", "restart")
    assert f"{session} stands at step 3" in place.run("force", session, "--id", "5").out.decode()
    assert "empty" in place.run("close", "", code=2).err
    assert f"{session} is closed" in place.run("close", session).out.decode()


def test_resume_and_pause(place: Place, session: str) -> None:
    place.run("resume", session)
    assert "stands at step" in place.run("pause", session).out.decode()
    standing = place.session(session)
    assert standing["status"] == "paused"
    assert "stands at step" in place.run("pause", session).out.decode()
    assert place.session(session)["place"] == standing["place"]


def test_busy_while_running(place: Place, session: str) -> None:
    place.run("resume", session)
    done = place.run("step", session, code=4)
    assert "running" in done.err
    place.run("pause", session)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--text", ""), "must not be empty"),
        (("--id", "999999"), "no token id"),
        ((), "--id ID or --text TEXT"),
        (("--id", "1", "--text", "a"), "one of them"),
    ],
)
def test_what_cannot_be_forced(
    place: Place, session: str, words: tuple[str, ...], part: str
) -> None:
    assert part in place.run("force", session, *words, code=2).err
    assert place.session(session)["place"]["step"] == 0


def test_after_the_end_of_the_sequence(place: Place) -> None:
    script = ("--engine", "scripted", "--model", "scripted:rate=0,eos_at=6")
    lines = place.json("run", *script, "--json", "--keep", "Hello")
    session, steps = lines[-1]["session"], lines[-1]["steps"]
    assert place.session(session)["status"] == "ended"
    assert f"stands at step {steps}" in place.run("step", session).out.decode()
    assert f"stands at step {steps + 1}" in place.run("step", session).out.decode()


def test_a_lease_held_by_a_screen_is_respected_until_it_leaves(place: Place) -> None:
    with place.terminal(*SCRIPTED, "--as", "Ada", "Hello") as screen:
        screen.until("step 0 pending")
        (found,) = place.status()["sessions"]
        session = str(found["session"])
        assert (found["holder"], found["lease_no"]) == ("Ada", 1)
        for words in (
            ("step", session),
            ("resume", session),
            ("force", session, "--id", "300"),
            ("close", session),
        ):
            done = place.run(*words, code=4)
            assert "lease held by Ada" in done.err
            assert "Add --take" in done.err
            assert f"attach --session {session}" in done.err
        place.run("pause", session)
        taken = place.run("step", session, "--take", "--as", "Bob").out.decode()
        assert "at step 1" in taken
        screen.until("Bob took the lease of this session · L takes it back")
        screen.press("s")  # Bob's command is over: the lease is free again
        wait_for(lambda: place.session(session)["place"]["step"] == 2)
        screen.press("q")
        screen.finish()
    assert "at step 3" in place.run("step", session, "--as", "Bob").out.decode()
    wait_for(lambda: place.session(session)["holder"] is None)


def test_a_run_whose_lease_is_taken_says_so_and_waits(place: Place) -> None:
    run = place.start("run", *ENDLESS, "Hello")  # text: nobody reads it, and a pipe is short
    wait_for(lambda: any(place.connections()) and bool(place.status()["sessions"]))
    session = str(place.status()["sessions"][0]["session"])
    with place.terminal("attach", "--session", session, "--as", "Bob") as screen:
        screen.until("LIVE")
        screen.press("L")
        screen.until("take the lease")
        screen.press("y")
        assert "taken by Bob" in run.said("taken")
        screen.press("space")
        assert "the run waits" in run.said("paused by Bob")
        run.send(signal.SIGINT)
        run.finish(130)
        screen.press("q")
        screen.finish()


def test_a_run_leaves_open_what_somebody_else_holds_at_its_end(place: Place) -> None:
    slow = ("--engine", "scripted", "--model", "scripted:rate=10", "--candidates", "2")
    run = place.start("run", *slow, "--json", "--steps", "80", "Hello")
    session = str(run.until("step", 1)["session"])
    place.run("pause", session)
    run.said("the run waits")
    with place.terminal("attach", "--session", session, "--as", "Bob") as screen:
        screen.until("PAUSED")
        screen.press("space")
        done = run.finish(0)
        assert done.lines[-1]["reason"] == "length"
        assert "not closed: lease held by Bob" in done.err
        assert f"attach --session {session}" in done.err
        assert place.session(session)["status"] == "ended"
        screen.press("q")
        screen.finish()
