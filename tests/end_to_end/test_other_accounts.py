"""`attach USER/NAME` by other accounts of the machine: the command itself, on a terminal each."""

import os
import pwd
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_daemon.paths import short_hash
from tests.daemons import wait_for
from tests.end_to_end.command import SCRIPTED, Place
from tests.end_to_end.terminal import Terminal
from tests.hub.test_sharing import needs_root

pytestmark = [pytest.mark.terminal, pytest.mark.xdist_group("usual folder"), needs_root]

ROOT = Path(__file__).parents[2]
USUAL = Path(f"/tmp/llmi-{os.getuid()}")
OWNER = pwd.getpwuid(os.getuid()).pw_name
WATCHES, COMMANDS, STRANGER = "nobody", "daemon", "games"
"""Accounts that every Linux has."""


@pytest.fixture
def name(place: Place) -> Iterator[str]:
    """Of a daemon where `USER/NAME` looks for it, which is the usual folder alone."""
    del place.env["LLM_INSPECT_RUNTIME_DIR"]
    made = f"test-{secrets.token_hex(4)}"
    mode = stat.S_IMODE(USUAL.stat().st_mode) if USUAL.exists() else 0o700
    yield made
    place.run("daemon", "stop", "--name", made, code=None)
    shutil.rmtree(USUAL / short_hash(made), ignore_errors=True)
    USUAL.chmod(mode)


def terminal_of(place: Place, user: str, *words: str) -> Terminal:
    """The command in a terminal of that account, whose home is its own."""
    account = pwd.getpwnam(user)
    home = place.root / user
    home.mkdir()
    os.chown(home, account.pw_uid, account.pw_gid)
    place.root.chmod(0o711)
    kept = ("PATH", "TERM", "LANG", "LC_ALL")
    env = {key: value for key, value in place.env.items() if key in kept}
    env |= {"HOME": str(home), "USER": user, "LOGNAME": user, "PYTHONPATH": str(ROOT)}
    module = "tests.end_to_end.as_account"
    return Terminal([sys.executable, "-m", module, user, *words], env, home)


@pytest.mark.fault("S1", "S4", "S5")
def test_another_account_attaches_by_user_and_name_as_what_it_may_be(
    place: Place, name: str
) -> None:
    """Who may watch sees the session and moves nothing, who may command steps it, and a third one
    is told no more than that there is nothing to reach."""
    shared = ("--share", WATCHES, "--share-control", COMMANDS)
    started = place.run("daemon", "start", "--name", name, *SCRIPTED, *shared)
    assert f"llm-inspect attach {OWNER}/{name}" in started.err
    place.run("run", "--name", name, "--steps", "0", "--keep", "Hello there")
    where = ("attach", f"{OWNER}/{name}")

    def info() -> dict[str, object]:
        (status,) = place.json("daemon", "status", "--name", name, "--json")
        (session,) = status["sessions"]
        return {"step": session["place"]["step"], "viewers": status["viewers"]}

    def of(user: str) -> list[tuple[object, object]]:
        viewers: list[dict[str, object]] = info()["viewers"]  # type: ignore[assignment]
        uid = pwd.getpwnam(user).pw_uid
        return [(one["role"], one["uid"]) for one in viewers if one["uid"] == uid]

    with terminal_of(place, WATCHES, *where) as watches:
        watches.until("step 0 pending")
        watches.until("Hello␣there")
        watches.until("OBSERVING")
        assert of(WATCHES) == [("observer", pwd.getpwnam(WATCHES).pw_uid)]
        watches.press("s")
        watches.until("only observes")
        assert info()["step"] == 0
        with terminal_of(place, COMMANDS, *where) as commands:
            commands.until("step 0 pending")
            assert [role for role, _ in of(COMMANDS)] == ["controller"]
            commands.press("s")
            commands.until("step 1 pending")
            watches.until("step 1 pending")
            assert info()["step"] == 1
            with terminal_of(place, STRANGER, *where) as stranger:
                told = stranger.finish(4)
                assert "Hello" not in told
                assert f"{OWNER}/{name}" in told
                assert "Traceback" not in told
            assert of(STRANGER) == []
            commands.press("q")
            commands.finish()
        watches.press("q")
        assert f"attach {OWNER}/{name}" in watches.finish()
    wait_for(lambda: info()["viewers"] == [])
