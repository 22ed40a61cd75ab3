"""A daemon that others on the machine may come to: whom it lets in, and as what."""

import grp
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from engine_daemon.errors import Exit, InspectError
from engine_daemon.hub import sharing
from engine_daemon.hub.sharing import Sharing, check_own_peer, resolve
from engine_daemon.launch import start_daemon
from engine_daemon.lookup import read_connection
from engine_daemon.paths import foreign, paths_for, short_hash
from tests.daemons import Daemon, directories, outside_the_loop, watching

OTHER = "nobody"
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")

_CLIENT = """
import asyncio, json, os, sys
import zmq.utils.monitor, getpass, socket, encodings.idna
from engine_daemon.client import DaemonClient
from engine_daemon.errors import InspectError
from engine_daemon.paths import foreign
from engine_daemon.protocol import commands as cmd

uid, where, session, take = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
paths = foreign(where)
os.setgroups([]); os.setgid(uid); os.setuid(uid)

async def main():
    codes = {}
    async with DaemonClient(paths, who="other", client="test", reconnect=False) as client:
        codes["role"] = client.welcome.role
        codes["sessions"] = [s.session for s in client.state.sessions]
        codes["uids"] = sorted(v.uid for v in client.state.viewers if v.uid is not None)
        for name, do, at in (
            ("pause", cmd.Pause(), None),  # before the step: it would stop it at its start
            ("run_to", cmd.RunTo(step=1), cmd.At(branch=0, step=0)),
            ("note", cmd.Note(text="hello"), None),
            ("stop", cmd.StopDaemon(), None),
        ):
            try:
                if name == "run_to" and take == "take":
                    await client.lease("take", session)
                await client.command(do, session, at)
                codes[name] = "accepted"
            except InspectError as error:
                codes[name] = error.code
    return codes

try:
    print(json.dumps(asyncio.run(main())))
except InspectError as error:
    print(json.dumps({"error": error.code, "exit": int(error.exit_code)}))
"""


def as_other(where: str, session: str = "", take: str = "", user: str = OTHER) -> dict[str, Any]:
    """What a client of another account is told."""
    done = subprocess.run(
        [sys.executable, "-c", _CLIENT, str(pwd.getpwnam(user).pw_uid), where, session, take],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


@contextmanager
def shared(**options: str) -> Iterator[Daemon]:
    """A daemon shared with others, in folders that they may pass through."""
    with directories() as root:
        (root / "run").mkdir()
        for folder in (root, root / "run"):
            folder.chmod(0o711)
        daemon = Daemon()
        daemon.options = msgspec.structs.replace(daemon.options, **options)
        with daemon:
            yield daemon


def endpoint(daemon: Daemon) -> str:
    return str(read_connection(daemon.paths)["viewers"])


def mode(path: Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_roles_by_account() -> None:
    ours = Sharing(watch=frozenset({7}), control=frozenset({8}), own=5)
    assert ours.uids == [5, 7, 8]
    assert [ours.role(uid, "control") for uid in (5, 7, 8)] == [
        "controller",
        "observer",
        "controller",
    ]
    assert {ours.role(uid, "observe") for uid in (5, 7, 8)} == {"observer"}
    assert not Sharing().on


def test_names_and_groups_become_uids() -> None:
    nobody = pwd.getpwnam(OTHER)
    group = next(g for g in grp.getgrall() if g.gr_gid == nobody.pw_gid)
    assert resolve(OTHER, "").watch == {nobody.pw_uid}
    assert nobody.pw_uid in resolve(f"@{group.gr_name}", "").watch
    both = resolve(OTHER, OTHER)
    assert (set(both.watch), set(both.control)) == (set(), {nobody.pw_uid})
    for wrong in ("no-such-user", "@no-such-group"):
        with pytest.raises(InspectError, match="there is no"):
            resolve(wrong, "")


@needs_root
@pytest.mark.fault("S4", "S5")
async def test_who_may_watch_watches_and_changes_nothing() -> None:
    with shared(share=OTHER) as daemon:
        async with watching(daemon.paths) as watch:
            await watch.standing(0)
            told = as_other(endpoint(daemon), watch.session, "take")
            assert told["role"] == "observer"
            assert told["sessions"] == [watch.session]
            assert told["uids"] == [pwd.getpwnam(OTHER).pw_uid]
            assert {told[name] for name in ("run_to", "pause", "note", "stop")} == {"observer"}
            await watch.run_to(1)
            await watch.standing(1)


@needs_root
@pytest.mark.fault("S4")
async def test_who_may_command_does_so_but_never_stops_the_daemon() -> None:
    with shared(share_control=OTHER) as daemon:
        async with watching(daemon.paths) as watch:
            await watch.standing(0)
            assert as_other(endpoint(daemon), watch.session)["run_to"] == "no_lease"
            told = as_other(endpoint(daemon), watch.session, "take")
            assert told["role"] == "controller"
            assert [told[n] for n in ("run_to", "pause", "note", "stop")] == [
                *("accepted", "accepted", "accepted"),
                "observer",
            ]
            await watch.standing(1)
            assert [note.who for note in watch.columns.notes] == ["other", "other"]


@needs_root
@pytest.mark.fault("S1", "S4")
def test_nobody_else_gets_in() -> None:
    others = [user for user in pwd.getpwall() if user.pw_uid not in (0, _uid())]
    with shared(share=OTHER) as daemon:
        told = as_other(endpoint(daemon), user=others[0].pw_name)
        assert told == {"error": "no_answer", "exit": int(Exit.DAEMON)}


def _uid() -> int:
    return pwd.getpwnam(OTHER).pw_uid


@needs_root
@pytest.mark.fault("S1")
def test_without_sharing_the_filter_alone_refuses_though_every_door_is_open() -> None:
    with shared() as daemon:
        assert mode(daemon.paths.runtime) == 0o700
        assert mode(daemon.paths.viewer_socket) == 0o600
        assert as_other(endpoint(daemon))["error"] == "no_daemon"
        daemon.paths.runtime.chmod(0o711)
        assert as_other(endpoint(daemon))["error"] == "no_daemon"
        daemon.paths.viewer_socket.chmod(0o666)
        assert as_other(endpoint(daemon))["error"] == "no_answer"


@needs_root
@pytest.mark.fault("S2", "S4")
def test_modes_while_shared_and_after() -> None:
    with shared(share=OTHER) as daemon:
        paths = daemon.paths
        assert mode(paths.runtime) == 0o711
        assert mode(paths.viewer_socket) == 0o666
        for file in (paths.lock, paths.connection, paths.engine_socket, paths.pieces):
            assert mode(file) & 0o077 == 0, file
        assert mode(paths.log) == 0o600
        daemon.stop()
        assert mode(paths.runtime) == 0o700
        # One that was killed leaves 0711 behind: the next start sets it back.
        daemon.start()
        daemon.kill()
        assert mode(paths.runtime) == 0o711
        daemon.options = msgspec.structs.replace(daemon.options, share="")
        daemon.start()
        assert mode(paths.runtime) == 0o700


def test_a_folder_that_keeps_others_out_is_said_before_anything_starts() -> None:
    with directories():
        daemon = Daemon()
        daemon.options = msgspec.structs.replace(daemon.options, share=OTHER)
        with pytest.raises(InspectError, match="keeps other users out") as caught:
            outside_the_loop(lambda: start_daemon(daemon.paths, daemon.options))
        assert caught.value.exit_code == Exit.DAEMON


@pytest.mark.fault("S4")
def test_an_unknown_name_starts_no_daemon() -> None:
    with directories():
        daemon = Daemon()
        daemon.options = msgspec.structs.replace(daemon.options, share="no-such-user")
        with pytest.raises(InspectError, match="there is no user 'no-such-user'"):
            outside_the_loop(lambda: start_daemon(daemon.paths, daemon.options))


@pytest.mark.parametrize("told", ["Routing-Id", "Socket-Type", "Nothing"])
@pytest.mark.fault("S4")
def test_a_system_that_does_not_tell_who_connects_shares_nothing(
    told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    path = tmp_path / "v.sock"
    router.bind(f"ipc://{path}")
    try:
        check_own_peer(context, router, path)
        monkeypatch.setattr(sharing, "_PEER", told)
        with pytest.raises(InspectError, match="cannot be shared"):
            check_own_peer(context, router, path)
    finally:
        router.close(linger=0)
        context.term()


def test_a_colleagues_daemon_is_named_by_user_and_name() -> None:
    paths = foreign(f"{OTHER}/lab")
    assert paths.endpoint == f"ipc:///tmp/llmi-{_uid()}/{short_hash('lab')}/v.sock"
    assert paths.state == paths_for().state
    for wrong in ("no-such-user/lab", f"{OTHER}/", f"{OTHER}/a b"):
        with pytest.raises(InspectError):
            foreign(wrong)
