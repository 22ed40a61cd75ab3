"""How an error reads."""

from pathlib import Path

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


def test_what_never_left_is_told_in_one_way() -> None:
    root = Path(__file__).parents[1]
    sources = [*root.glob("tui/**/*.py"), *root.glob("engine_daemon/**/*.py")]
    saying = [path.name for path in sources if '"not sent: the daemon' in path.read_text()]
    assert saying == ["errors.py"]
