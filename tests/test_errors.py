"""How an error reads."""

from engine_daemon.errors import InspectError


def test_what_somebody_gave_does_not_fill_the_screen() -> None:
    number = "9" * 5000
    error = InspectError(f"--steps takes a whole number, not {number!r}", "Give a shorter one")
    first, second = error.lines().split("\n")
    assert len(first) < 200
    assert first.startswith("--steps takes a whole number, not '999")
    assert "…" in first
    assert second == "Give a shorter one"
    path = "/data/" + "x" * 150
    assert InspectError(path).lines() == path


def test_two_lines_at_most() -> None:
    assert InspectError("what happened").lines() == "what happened"
    assert InspectError("what happened", "what to do").lines() == "what happened\nwhat to do"
