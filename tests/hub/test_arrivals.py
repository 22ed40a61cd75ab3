"""Who is let in at hello, without a socket: the most there may be, who comes back, and as whom."""

import os
from typing import cast

import pytest

from engine_daemon.hub.arrivals import Arrivals
from engine_daemon.hub.sharing import Sharing
from engine_daemon.hub.viewers import Viewer
from engine_daemon.protocol import commands as cmd

UID = os.getuid()


class Door:
    """Two viewers at most. `holding`: ids of those that have a lease."""

    def __init__(self) -> None:
        self.viewers: dict[bytes, Viewer] = {}
        self.holding: set[bytes] = set()
        sharing = Sharing(control=frozenset([UID + 1]))
        self.arrivals = Arrivals(self.viewers, 2, sharing, self.holding.__contains__)

    def hello(self, route: bytes, resume: bytes | None = None, uid: int = UID) -> Viewer:
        answer = self.say(route, resume, uid)
        assert isinstance(answer, Viewer)
        return answer

    def say(
        self, route: bytes, resume: bytes | None = None, uid: int = UID, major: int = 1
    ) -> Viewer | cmd.Refuse:
        hello = cmd.Hello(min=major, max=major, caps=[], client="c", who="w", resume=resume)
        return self.arrivals.hello(route, uid, hello, 1.0)

    def leave(self, viewer: Viewer) -> None:
        del self.viewers[viewer.route]
        self.arrivals.left(viewer)

    def refusal(self, route: bytes, resume: bytes | None = None) -> str:
        return cast("cmd.Refuse", self.say(route, resume)).code


def test_another_major_version_is_refused() -> None:
    door = Door()
    assert cast("cmd.Refuse", door.say(b"1", major=2)).code == "version"
    assert door.viewers == {}


@pytest.mark.pitfall("P11")
def test_the_third_of_two_is_refused_until_one_has_left() -> None:
    door = Door()
    first, _ = door.hello(b"1"), door.hello(b"2")
    assert door.refusal(b"3") == "full"
    assert door.hello(b"2").route == b"2"  # who says hello twice is no other one
    door.leave(first)
    assert door.hello(b"3") in door.viewers.values()


@pytest.mark.pitfall("P11")
def test_who_comes_back_is_let_in_as_the_one_it_was() -> None:
    door = Door()
    held, other = door.hello(b"1"), door.hello(b"2")
    door.holding.add(held.id)
    door.leave(held)
    door.hello(b"3")
    assert door.refusal(b"4", b"somebody else") == "full"
    assert door.hello(b"4", held.id).id == held.id
    assert door.hello(b"5", other.id).id == other.id  # its old link is not known to be lost
    assert set(door.viewers) == {b"3", b"4", b"5"}


def test_nobody_comes_back_as_somebody_elses_viewer_or_for_what_is_free() -> None:
    door = Door()
    held = door.hello(b"1")
    door.holding.add(held.id)
    door.leave(held)
    assert door.hello(b"2", held.id, uid=UID + 1).id != held.id
    door.holding.clear()
    door.arrivals.look()
    assert door.hello(b"3", held.id).id != held.id


@pytest.mark.pitfall("P11")
def test_it_is_said_to_be_narrow_once_each_time(caplog: pytest.LogCaptureFixture) -> None:
    door = Door()
    first = door.hello(b"1")
    assert caplog.messages == []
    door.hello(b"2")
    door.hello(b"2")
    assert caplog.messages == ["2 viewers are attached, of 2 at most (ulimit -Hn)"]
    door.leave(first)
    door.arrivals.look()
    door.hello(b"3")
    assert len(caplog.messages) == 2
