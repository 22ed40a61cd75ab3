"""Recordings of one daemon: listed as what they are, pinned, and removed where room is short."""

import signal
from pathlib import Path

from tests.daemons import wait_for
from tests.end_to_end.command import SCRIPTED, Line, Place, alive


def run(place: Place, *more: str, steps: int = 5) -> str:
    """A session that ran to its end and was closed."""
    words = ("run", *SCRIPTED, "--json", "--steps", str(steps), *more, "Once upon a time")
    return str(place.run(*words).lines[-1]["session"])


def listed(place: Place) -> dict[str, Line]:
    return {row["session"]: row for row in place.run("sessions", "list", "--json").lines}


def limit(place: Place, size: int) -> None:
    """`spool_bytes` in the configuration; the daemon is stopped and takes it at its next start."""
    folder = place.root / "config" / "llm-inspect"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(f"[daemon.default]\nspool_bytes = {size}\n")


def test_a_stopped_daemons_sessions_are_listed_as_what_they_are(place: Place) -> None:
    ended = run(place)
    kept_open = run(place, "--keep")
    assert listed(place)[kept_open]["status"] == "ended"
    for _ in range(12):  # each start and stop adds events after the last step
        place.run("daemon", "restart", "--yes")
    place.run("daemon", "stop")
    rows = listed(place)
    assert (rows[ended]["status"], rows[ended]["open"], rows[ended]["step"]) == ("closed", False, 5)
    row = rows[kept_open]
    assert (row["status"], row["open"], row["step"]) == ("open, daemon stopped", False, 5)
    text = place.run("sessions").out.decode()
    assert "open, daemon stopped" in text
    place.run("daemon", "start", *SCRIPTED)
    assert listed(place)[kept_open]["status"] == "ended"
    (connection,) = place.connections()
    hub = int(connection["pid"])
    place.kill(hub, signal.SIGKILL)
    wait_for(lambda: not alive(hub))
    assert listed(place)[kept_open]["status"] == "open, daemon stopped"
    assert listed(place)[kept_open]["step"] == 5


def there(place: Place) -> set[str]:
    """The recordings on disk."""
    return {path.stem for path in (place.root / "state").rglob("*.lir")}


def test_the_oldest_closed_recordings_give_way_and_no_other(place: Place) -> None:
    oldest, pinned, second = (run(place) for _ in range(3))
    still_open = run(place, "--keep")
    assert place.run("sessions", "keep", pinned).out.decode() == f"{pinned} is kept\n"
    assert listed(place)[pinned]["kept"] is True
    assert "closed, kept" in place.run("sessions").out.decode()
    size = place.recording(oldest).stat().st_size
    place.run("daemon", "stop")
    limit(place, int(size * 4.5))
    whole = place.recording(second).read_bytes()
    damaged = place.recording(second).with_name("DAMAGED0.lir")
    damaged.write_bytes(whole[: size // 2] + b"\0" * 64 + whole[size // 2 + 64 : -7])

    with place.recording(oldest).open("rb") as reading:  # who reads it reads on
        place.run("daemon", "start", *SCRIPTED)
        wait_for(lambda: there(place) == {pinned, second, still_open, "DAMAGED0"})
        assert len(reading.read()) == size
    assert f"made room: removed the recording {oldest}" in place.run("daemon", "logs").out.decode()

    newest = run(place)
    wait_for(lambda: there(place) == {pinned, newest, still_open, "DAMAGED0"})
    last = run(place)
    wait_for(lambda: there(place) == {pinned, last, still_open, "DAMAGED0"})

    place.run("sessions", "keep", pinned, "--off")
    assert listed(place)[pinned]["kept"] is False
    after = run(place)
    wait_for(lambda: there(place) == {last, after, still_open, "DAMAGED0"})


def test_a_pin_goes_with_its_recording_and_a_private_session_takes_none(place: Place) -> None:
    session = run(place)
    place.run("sessions", "keep", session)
    beside = Path(listed(place)[session]["file"]).with_suffix(".keep")
    assert beside.stat().st_mode & 0o777 == 0o600
    shown = place.run("sessions", "show", session, "--json").lines[0]
    assert shown["kept"] is True
    assert "keep --off" in place.run("sessions", "rm", session, code=2).err
    assert (beside.exists(), Path(listed(place)[session]["file"]).exists()) == (True, True)
    place.run("sessions", "keep", "--off", session)
    assert not beside.exists()
    place.run("sessions", "rm", session)
    private = run(place, "--keep", "--private")
    refused = place.run("sessions", "keep", private, code=2)
    assert "is private" in refused.err
    missing = place.run("sessions", "keep", "NOSUCH00", code=2)
    assert "no session" in missing.err
