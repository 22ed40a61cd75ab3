"""Several screens on one session: who commands, who is seen, and what each key of whom does."""

import signal

import pytest

from tests.daemons import wait_for
from tests.end_to_end.command import SCRIPTED, Place
from tests.end_to_end.terminal import Terminal

pytestmark = pytest.mark.terminal

RATE = ("--engine", "scripted", "--model", "scripted:rate=50,context=4096")


class Attached:
    """A screen that attaches when it is told to."""

    screen: Terminal

    def __init__(
        self, place: Place, who: str, *words: str, columns: int = 120, lines: int = 40
    ) -> None:
        self._place, self._words = place, ("attach", "--as", who, *words)
        self._columns, self._lines = columns, lines

    def start(self) -> None:
        self.screen = self._place.terminal(*self._words, columns=self._columns, lines=self._lines)

    def __enter__(self) -> "Attached":
        return self

    def __exit__(self, *error: object) -> None:
        if hasattr(self, "screen"):
            self.screen.__exit__(None, None, None)


def test_hand_over_pause_and_detach_by_keys(place: Place) -> None:
    with (
        place.terminal(*RATE, "--as", "ann", "Hello pods are") as ann,
        Attached(place, "bob", columns=80, lines=24) as bob,
        Attached(place, "eve", "--observe") as eve,
    ):
        ann.until("step 0 pending")
        bob.start()
        eve.start()
        bob.screen.until("step 0 pending")
        eve.screen.until("OBSERVING")
        for screen in (bob.screen, eve.screen):
            screen.until("lease ann")
        ann.until("lease you · 3 viewers")

        # Not his: nothing happens, and he is told why.
        bob.screen.press("s")
        bob.screen.until("lease held by ann · L takes it")
        eve.screen.press("s")
        eve.screen.until("only observes")
        assert place.status()["sessions"][0]["place"]["step"] == 0

        # Asked first; then his, and she is told.
        bob.screen.press("L")
        bob.screen.until("take the lease from ann?")
        bob.screen.press("y")
        bob.screen.until("lease you")
        ann.until("bob took the lease")
        ann.press("s")
        ann.until("lease held by bob · L takes it")
        bob.screen.press("s")
        for screen in (ann, bob.screen, eve.screen):
            screen.until("step 1 pending")
            screen.until("bob: step to 1")

        # Anybody who may command may pause; an observer may not.
        bob.screen.press("space")
        ann.until("LIVE")
        eve.screen.until("LIVE")
        eve.screen.press("space")
        eve.screen.until("only observes")
        ann.press("space")
        for screen in (ann, bob.screen, eve.screen):
            screen.until("PAUSED")
            screen.until("ann: pause")

        # A note, for everybody.
        ann.press("m")
        ann.until("NOTE")
        ann.press("why this one?", "enter")
        ann.until(lambda picture: "NOTE ─" not in picture)
        eve.screen.until("ann: note why this one?")
        eve.screen.press("'")
        eve.screen.until("why this one?")
        eve.screen.press("escape")
        eve.screen.until(lambda picture: "NOTES ─" not in picture)

        # Who leaves gives it back at once; the next step takes it.
        bob.screen.press("q")
        bob.screen.finish()
        wait_for(lambda: place.status()["sessions"][0]["holder"] is None)
        step = place.status()["sessions"][0]["place"]["step"]
        ann.press("s")
        eve.screen.until(f"step {step + 1} pending")
        assert place.status()["sessions"][0]["holder"] == "ann"
        eve.screen.press("v")
        eve.screen.until("bob: took the lease from ann")
        eve.screen.press("escape")
        eve.screen.until(lambda picture: "WHO DID WHAT" not in picture)
        eve.screen.press("q")
        eve.screen.finish()
        ann.press("q")
        ann.finish()


def test_a_screen_that_is_killed_loses_its_lease_in_time(place: Place) -> None:
    with place.terminal(*SCRIPTED, "--as", "ann", "Hello") as ann:
        ann.until("step 0 pending")
        assert place.status()["sessions"][0]["holder"] == "ann"
        ann.process.kill()
        wait_for(lambda: place.status()["sessions"][0]["holder"] is None)
    session = place.status()["sessions"][0]["session"]
    assert "at step 1" in place.run("step", session).out.decode()


def test_a_daemon_is_attached_to_by_its_socket(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    place.run("run", "--steps", "2", "--keep", "Hello there")
    (connection,) = place.connections()
    where = str(connection["viewers"])
    with place.terminal("attach", where) as screen:
        screen.until("Hello␣there")
        screen.press("q")
        assert f"attach {where} --session" in screen.finish().replace("\n", "").replace("  ", "")
    with place.terminal("attach", "no-such-user/lab") as screen:
        assert "there is no user 'no-such-user'" in screen.finish(2)
    with place.terminal("attach", f"{where}.not") as screen:
        assert "no daemon can be reached" in screen.finish(4)


def test_a_daemon_in_a_folder_of_ones_own_is_not_shared(place: Place) -> None:
    done = place.run("daemon", "start", *SCRIPTED, "--share", "nobody", code=4)
    assert "keeps other users out" in done.err
    assert "--share takes" in place.run("daemon", "start", "--share", "a b", code=2).err
    (place.root / "run").chmod(0o711)
    place.root.chmod(0o711)
    started = place.run("daemon", "start", *SCRIPTED, "--share", "nobody").err
    assert "shared: nobody may watch" in started
    assert place.status()["viewers"] == []
    place.run("daemon", "restart", "--share", "")
    assert not [path for path in (place.root / "run").iterdir() if path.stat().st_mode & 0o077]


@pytest.mark.fault("W6")
def test_keys_pressed_while_a_screen_stood_still_do_nothing(place: Place) -> None:
    """It holds the lease, is stopped for longer than that lasts, and wakes."""
    with place.terminal(*RATE, "--as", "ann", "Hello pods are") as ann:
        ann.until("step 0 pending")
        ann.press("s")
        ann.until("step 1 pending")
        session = str(place.status()["sessions"][0]["session"])
        assert place.session(session)["holder"] == "ann"
        ann.process.send_signal(signal.SIGSTOP)
        ann.press("s", "s", "space", "s")
        wait_for(lambda: place.session(session)["holder"] is None)
        ann.process.send_signal(signal.SIGCONT)
        ann.until("not sent: this screen stood still for")
        assert place.session(session)["place"]["step"] == 1
        assert place.session(session)["status"] == "paused"
        wait_for(lambda: bool(place.status()["viewers"]))
        ann.press("s")  # once it is attached again: what is pressed now counts
        ann.until("step 2 pending")
        assert place.session(session)["place"]["step"] == 2
        ann.press("q")
        ann.finish()


def test_who_looks_at_a_recording_that_is_removed_is_told(place: Place) -> None:
    with place.terminal(*RATE, "--as", "ann", "Hello pods are") as ann:
        ann.until("step 0 pending")
        (session,) = (row["session"] for row in place.json("sessions", "list", "--json"))
        place.run("close", session, "--take")
        wait_for(lambda: place.status()["sessions"] == [])
        done = place.run("sessions", "rm", session)
        assert "told who looked at it: ann (tui " in done.err
        assert done.out.decode() == f"{session} is removed\n"
        ann.until("removed this recording")
        # It is gone for good: who goes on with it is told so, and the daemon lives.
        assert place.run("open", session, *RATE, code=None).code in (2, 4, 6)
        assert place.status()["engine"]["word"] == "ready"
        ann.press("q")
        ann.finish()
