"""Finding the session that somebody means."""

import msgspec
import pytest

from engine_daemon.addressing import attach_line, find_session, newest_session
from engine_daemon.errors import InspectError
from engine_daemon.protocol.state import Place, SessionInfo


def info(session: str, title: str) -> SessionInfo:
    return SessionInfo(
        session=session,
        title=title,
        status="paused",
        place=Place(),
        resident=True,
        head=3,
        created_ns=0,
    )


SESSIONS = [info("ABCD1234", "first"), info("ABXY1234", "second"), info("KKKK1234", "first")]


@pytest.mark.parametrize(
    ("wanted", "session"),
    [("ABCD1234", "ABCD1234"), ("abx", "ABXY1234"), ("K", "KKKK1234"), ("second", "ABXY1234")],
)
def test_by_id_prefix_and_title(wanted: str, session: str) -> None:
    assert find_session(SESSIONS, wanted).session == session


@pytest.mark.parametrize(
    ("wanted", "words"),
    [("AB", "several sessions: ABCD1234, ABXY1234"), ("first", "several"), ("Z", "no session 'Z'")],
)
def test_none_or_several(wanted: str, words: str) -> None:
    with pytest.raises(InspectError, match=words) as raised:
        find_session(SESSIONS, wanted)
    assert raised.value.exit_code == 2


@pytest.mark.parametrize("sessions", [[], SESSIONS, [info("ABCD1234", "")]])
def test_nothing_means_no_session(sessions: list[SessionInfo]) -> None:
    with pytest.raises(InspectError, match="empty") as raised:
        find_session(sessions, "")
    assert raised.value.exit_code == 2


def test_no_session_is_open() -> None:
    with pytest.raises(InspectError) as raised:
        find_session([], "K")
    assert "sessions list" in raised.value.hint


def test_the_most_recent_one() -> None:
    assert newest_session([]) is None
    pairs = zip(SESSIONS, (1, 3, 2), strict=True)
    created = [msgspec.structs.replace(s, created_ns=n) for s, n in pairs]
    assert newest_session(created) == "ABXY1234"


def test_how_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/llm-inspect")
    assert attach_line("default", "K") == "llm-inspect attach --session K"
    assert attach_line("big", "K") == "llm-inspect attach big --session K"


def test_a_command_that_is_not_on_the_path_is_named_as_it_was_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("sys.argv", [".venv/bin/llm-inspect", "attach"])
    assert attach_line("default", "K") == ".venv/bin/llm-inspect attach --session K"
