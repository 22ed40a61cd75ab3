"""What `daemon status` says of sessions, viewers and the engine."""

import pytest
from msgspec.structs import replace

from engine_daemon.cli.status import engine_text, session_text, viewer_text
from engine_daemon.protocol.state import EngineState, Place, SessionInfo, ViewerInfo

SESSION = SessionInfo(
    session="7ZK3M9QP",
    title="pods",
    status="paused",
    place=Place(kind="pending", step=864),
    resident=True,
    head=12,
    created_ns=1,
)
ANNA = ViewerInfo(viewer=bytes.fromhex("22a3ff"), who="me@box", client="tui 1", role="controller")


@pytest.mark.parametrize(
    ("stop", "trouble", "text"),
    [
        ("", "", "paused at 864, pods"),
        ("goal", "", "paused at 864, pods"),
        ("disk_full", "", "paused at 864 by a full disk, pods"),
        ("engine_lost", "", "paused at 864 by a lost engine, pods"),
        ("new_one", "", "paused at 864 by new_one, pods"),
        ("", "cannot write x", "paused at 864 (cannot write x; free some space, then go on), pods"),
    ],
)
def test_why_a_session_stands(stop: str, trouble: str, text: str) -> None:
    assert session_text(replace(SESSION, stop=stop, trouble=trouble)) == text


def test_one_viewer_has_a_short_line_and_several_are_told_apart() -> None:
    assert viewer_text(ANNA, alone=True) == "me@box: tui 1, controller"
    busy = replace(ANNA, sessions=["A", "B"], lag=1, holds=["B"], uid=7)
    assert (
        viewer_text(busy, alone=False)
        == "me@box #22a3: tui 1, controller, uid 7, follows A B, 1 event behind, lease B"
    )


def test_stages_are_called_as_on_the_screen() -> None:
    engine = EngineState(word="loading", stage="pack", model_name="m")
    assert engine_text(engine) == "loading, laying out the weights, m"
