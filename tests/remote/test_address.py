"""`ssh://…` as somebody types it, and what must never reach a command line."""

import pytest

from engine_daemon.errors import InspectError
from engine_daemon.remote.address import Remote, parse_remote


@pytest.mark.parametrize(
    ("where", "remote"),
    [
        ("ssh://box", Remote("box")),
        ("ssh://box/", Remote("box")),
        ("ssh://box/big", Remote("box", name="big")),
        ("ssh://me@box.lab:2222/big", Remote("box.lab", "me", 2222, "big")),
        ("ssh://me@corp.example@box", Remote("box", "me@corp.example")),
        ("ssh://[::1]:22/big", Remote("::1", None, 22, "big")),
        ("ssh://[fe80::1%eth0]", Remote("fe80::1%eth0")),
        ("ssh://gpu_1-a", Remote("gpu_1-a")),
    ],
)
def test_places(where: str, remote: Remote) -> None:
    assert parse_remote(where) == remote
    assert parse_remote(remote.where) == remote


def test_a_colleagues_daemon_is_attached_to_there() -> None:
    """A script that is told so can be copied as it is."""
    with pytest.raises(InspectError) as raised:
        parse_remote("ssh://me@box:2222/alice/lab")
    assert raised.value.exit_code == 2
    assert "alice's daemon" in raised.value.message
    assert raised.value.hint == "Attach there: ssh -t -p 2222 me@box llm-inspect attach alice/lab"


@pytest.mark.parametrize(
    "where",
    [
        "ssh://",
        "ssh:/box",
        "ssh:box",
        "ssh:///big",
        "ssh://-oProxyCommand=touch x",
        "ssh://-F/tmp/x",
        "ssh://me@-oProxyCommand=x",
        "ssh://-l@box",
        "ssh://a b",
        "ssh://$(touch x)",
        "ssh://`touch x`",
        "ssh://box;touch",
        "ssh://box\nx",
        "ssh://me'x@box",
        "ssh://@box",
        "ssh://box:0",
        "ssh://box:65536",
        "ssh://box:" + "9" * 5000,
        "ssh://box:ssh",
        "ssh://box:-1",
        "ssh://box:²",
        "ssh://box/a/b",
        "ssh://box/$(x)",
        "ssh://box/big\n",
        "ssh://[box]",
    ],
)
def test_no_places(where: str) -> None:
    with pytest.raises(InspectError) as raised:
        parse_remote(where)
    assert raised.value.exit_code == 2
