"""How far behind a viewer is: what was sent a moment ago is on its way, and no lag."""

from engine_daemon.hub.viewers import ACKED_WITHIN_S, Following, Viewer

SESSION = "7ZK3M9QP"


def test_lag_is_what_was_not_sent_or_not_acknowledged_in_time() -> None:
    following = Following(SESSION, 0, win_bytes=1000)
    viewer = Viewer(b"", "me", "tui", "observer", heard=0.0, following={SESSION: following})

    def lag(now: float) -> int:
        return viewer.lag({SESSION: 100}, now)

    assert lag(0.0) == 100
    following.sent(60, 500, now=10.0)
    assert lag(10.0) == 40
    following.sent(100, 500, now=10.5)
    assert lag(10.9) == 0
    assert lag(10.1 + ACKED_WITHIN_S) == 100  # the first batch should have been acknowledged
    following.acknowledge(60)
    assert lag(10.1 + ACKED_WITHIN_S) == 0
    assert lag(10.6 + ACKED_WITHIN_S) == 40
    following.acknowledge(100)
    assert lag(10.6 + ACKED_WITHIN_S) == 0


def test_who_still_gets_the_snapshot_has_nothing() -> None:
    following = Following(SESSION, 80, win_bytes=10, snapshot=[b"x" * 8, b"y" * 8])
    viewer = Viewer(b"", "me", "tui", "observer", heard=0.0, following={SESSION: following})
    assert viewer.lag({SESSION: 100}, 0.0) == 100
    for part in (1, 2):
        following.part_sent()
        following.acknowledge(0, part)
    assert viewer.lag({SESSION: 100}, 0.0) == 20
