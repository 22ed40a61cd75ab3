"""What stands in the way of `attach ssh://…`, and how it is said."""

from collections.abc import Callable

import pytest

from tests.end_to_end.command import Place
from tests.end_to_end.far import box as box
from tests.end_to_end.far import folders, nothing_left, paused
from tests.end_to_end.sshd import Box, free_port

pytestmark = pytest.mark.terminal


def strange_key(box: Box) -> None:
    (box.root / "authorized").write_text("")


def strange_host(box: Box) -> None:
    other = (box.root / "person.pub").read_text().split()
    (box.root / "known").write_text(f"box {other[0]} {other[1]}\n")


def nothing_installed(box: Box) -> None:
    (box.bin / "llm-inspect").unlink()


def an_older_one(box: Box) -> None:
    box.has_llm_inspect('#!/bin/sh\necho \'{"name": "default", "version": "0.0.1"}\'\n')


def a_stranger(box: Box) -> None:
    box.has_llm_inspect("#!/bin/sh\necho usage: llm-inspect FILE >&2\nexit 2\n")


def no_daemon(box: Box) -> None:
    pass


def nobody_at_home(box: Box) -> None:
    box.network.close()


@pytest.mark.parametrize(
    ("wrong", "message", "hint"),
    [
        (strange_key, "cannot log in as box: ", "ssh box"),
        (strange_host, "cannot log in as box: Host key verification failed", "ssh box"),
        (nobody_at_home, "cannot reach box: ", "ssh box"),
        (nothing_installed, "there is no llm-inspect on box", '[remote."box"] command'),
        (an_older_one, "the llm-inspect 0.0.1 on box is too old", "Install the version"),
        (a_stranger, "the llm-inspect on box is too old", "Install the version"),
        (no_daemon, "no daemon named default is running on box", "llm-inspect daemon start"),
    ],
)
def test_what_stands_in_the_way_is_said(
    place: Place, box: Box, wrong: Callable[[Box], None], message: str, hint: str
) -> None:
    wrong(box)
    with place.terminal("attach", "ssh://box", columns=160) as screen:
        picture = screen.finish(4)
    assert message in picture
    assert hint in picture
    assert len([line for line in picture.splitlines() if line.strip()]) <= 2
    nothing_left(place, box)


def test_a_server_that_forwards_no_sockets(place: Place) -> None:
    with Box(place, "AllowStreamLocalForwarding no") as box:
        paused(box)
        with place.terminal("attach", "ssh://box", columns=160) as screen:
            picture = screen.finish(4)
        assert "the ssh server on box forwards no Unix sockets" in picture
        assert "AllowStreamLocalForwarding yes" in picture
        nothing_left(place, box)


def test_no_ssh_and_no_terminal(place: Place) -> None:
    place.env["PATH"] = str(place.root)
    with place.terminal("attach", "ssh://box") as screen:
        assert "there is no ssh here" in screen.finish(4)
    assert folders(place) == []
    refused = place.run("attach", "ssh://box", code=2)
    assert "needs a terminal" in refused.err
    assert "Without one: ssh box llm-inspect sessions list" in refused.err
    assert folders(place) == []


def test_a_port_where_nobody_listens(place: Place, box: Box) -> None:
    with place.terminal("attach", f"ssh://me@box:{free_port()}", columns=160) as screen:
        picture = screen.finish(4)
    assert "cannot reach me@box: " in picture
    assert "Connection refused" in picture
    nothing_left(place, box)


def test_a_host_is_never_an_option(place: Place, box: Box) -> None:
    mark = place.root / "touched"
    for where in (f"ssh://-oProxyCommand=touch {mark}", f"ssh://box/$(touch {mark})"):
        with place.terminal("attach", where) as screen:
            screen.finish(2)
    assert not mark.exists()


def test_it_is_found_where_config_toml_says(place: Place, box: Box) -> None:
    paused(box)
    nothing_installed(box)
    box.install(box.root / "an odd place" / "llm-inspect")
    config = place.root / "config" / "llm-inspect"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(
        "[remote.box]\ncommand = \"'~/an odd place/llm-inspect'\"\n", "utf-8"
    )
    with place.terminal("attach", "ssh://box") as screen:
        screen.until("step 2 pending")
        screen.press("q")
        screen.finish()
    nothing_left(place, box)


def test_a_runtime_directory_too_deep_for_ssh(place: Place, box: Box) -> None:
    place.env["LLM_INSPECT_RUNTIME_DIR"] = str(place.root / ("d" * 68))
    with place.terminal("attach", "ssh://box", columns=160) as screen:
        picture = screen.finish(4)
    assert "ssh cannot have its sockets in" in picture
    assert "LLM_INSPECT_RUNTIME_DIR" in picture
