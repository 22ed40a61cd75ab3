"""What arrives at the viewers' socket: 10,000 broken messages, commands that may not act, other
versions. W1, W2, W5, S14."""

import asyncio
import os
import random
import resource
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgpack
import msgspec
import psutil
import pytest

from engine_daemon.client import DaemonClient
from engine_daemon.errors import InspectError
from engine_daemon.hub.complaints import MOST
from engine_daemon.hub.lease import FREE_FOR_ALL
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.codec import MAGIC, MAJOR, MINOR, seal
from engine_daemon.protocol.reads import AskEvents
from engine_daemon.protocol.state import State
from engine_daemon.protocol.values import PromptSpec
from tests.daemons import Daemon, Watch, attached, running_daemon, wait_for, watching
from tests.faults.load import MB
from tests.hub.test_lease import EXAMPLES, lease_of
from tests.hub.test_wire import RawViewer
from tests.protocol.samples import SAMPLES

SLOW = "scripted:rate=200,context=100000"
Record = Callable[[str, object], None]
HELLO = cmd.Hello(min=1, max=1, caps=[], client="raw", who="me")
MESSAGES = [s for s in SAMPLES.values() if type(s) in cmd.FROM_VIEWER.values()]
BOMBS = (
    b"\xdd\xff\xff\xff\xff",  # an array of 4 G elements
    b"\xdf\xff\xff\xff\xff",  # a map of as many
    b"\xdb\xff\xff\xff\xff",  # a string of 4 GB
    b"\xc6\xff\xff\xff\xff",  # bytes of 4 GB
    b"\x91" * 60_000,  # nesting
    b"\x81\xa1a" * 20_000,
    b"\xc9\x00\x00\x00\x04\x01abcd",  # an ext type
)
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
assert len(READY) == 2 + 6 + 12 + 4 + 6


def fuzzed(rng: random.Random, turn: int) -> list[bytes]:
    """A message that is none, in one of many ways."""
    frames = [bytearray(part) for part in seal(rng.choice(MESSAGES), id=turn, session="0")]  # type: ignore[arg-type]
    part = frames[rng.randrange(3)]
    match turn % 8:
        case 0 | 1:
            for _ in range(rng.randrange(1, 4)):
                part[rng.randrange(len(part))] ^= 1 << rng.randrange(8)
        case 2:
            del part[rng.randrange(len(part)) :]
        case 3:
            return [bytes(p) for p in frames * 4][: rng.choice((1, 2, 4, 7, 12))]
        case 4:
            return [MAGIC, rng.choice(BOMBS), bytes(frames[2])]
        case 5:
            return [MAGIC, bytes(frames[1]), rng.choice(BOMBS)]
        case 6:
            return [MAGIC, msgpack.packb({"t": "cmd", "id": turn}), rng.randbytes(50)]
        case _:
            return [rng.randbytes(rng.randrange(80)) for _ in range(3)]
    return [bytes(p) for p in frames]


@pytest.mark.fault("W1", "S14")
async def test_10_000_broken_messages_while_another_is_served(record_property: Record) -> None:
    rng = random.Random(11)
    with running_daemon(SLOW) as daemon:
        hub = psutil.Process(daemon.pid)
        before = hub.memory_info().rss
        # More than twice of it would not even be given.
        most = hub.memory_info().vms + 200 * MB
        resource.prlimit(daemon.pid, resource.RLIMIT_AS, (most, most))
        async with watching(daemon.paths) as watch:
            await watch.standing(0)
            fuzzer = asyncio.create_task(asyncio.to_thread(_fuzz, daemon, rng))
            steps = 0
            while not fuzzer.done():
                steps += 1
                await watch.run_to(steps)
                await watch.standing(steps)
            await fuzzer
            _raw_garbage(daemon, rng)
            await watch.run_to(steps + 1)
            await watch.standing(steps + 1)
            assert watch.client.connected
        grown = (hub.memory_info().rss - before) / MB
        log = daemon.paths.log.read_text("utf-8", "replace")
        assert "Traceback" not in log
        assert log.count("refused:") <= MOST + 2
        assert grown < 100
        record_property(
            "figure",
            f"{steps} steps served meanwhile; hub +{grown:.1f} MB; "
            f"{log.count('refused:')} lines in its log",
        )


def _fuzz(daemon: Daemon, rng: random.Random) -> None:
    for said_hello in (False, True):
        viewer = RawViewer(daemon)
        if said_hello:
            viewer.send(HELLO)
            viewer.until("welcome")
        for turn in range(5000):
            viewer.socket.send_multipart(fuzzed(rng, turn))
            if turn % 50 == 0:  # what is answered is no matter, but somebody must read it
                while viewer.socket.poll(0):
                    viewer.socket.recv_multipart()
        viewer.socket.close(linger=-1)  # what is under way arrives
        viewer.context.term()


def _raw_garbage(daemon: Daemon, rng: random.Random) -> None:
    """Before, in and after the handshake; at last a frame that says it has 8 GiB."""
    for said in (b"", GREETING[:20], GREETING, GREETING + READY):
        for _ in range(10):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.connect(str(daemon.paths.viewer_socket))
                raw.sendall(said + rng.randbytes(200))
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(60)
        raw.connect(str(daemon.paths.viewer_socket))
        raw.sendall(GREETING + READY)
        raw.sendall(b"\x02" + struct.pack(">Q", 8 * 1024**3) + b"x" * 1000)
        while raw.recv(4096):  # greeting and READY of the other side, then it is cut
            pass


@pytest.mark.fault("W1")
def test_connections_that_say_nothing_are_closed() -> None:
    with running_daemon() as daemon:
        hub = psutil.Process(daemon.pid)
        fds = hub.num_fds()
        silent = [socket.socket(socket.AF_UNIX) for _ in range(20)]
        try:
            for one in silent:
                one.settimeout(60)
                one.connect(str(daemon.paths.viewer_socket))
            for one in silent:
                while one.recv(4096):  # its greeting, then the end
                    pass
            wait_for(lambda: hub.num_fds() <= fds)
        finally:
            for one in silent:
                one.close()


async def test_who_did_not_read_is_told_the_latest_state() -> None:
    """Its queue was full when others came: what it reads in the end is how things stand."""
    with running_daemon() as daemon:
        viewer = RawViewer(daemon)
        viewer.send(HELLO)
        viewer.until("welcome")
        pings = [seal(cmd.Ping(), id=number) for number in range(20_000)]
        for frames in pings:
            viewer.socket.send_multipart(frames)
        async with DaemonClient(daemon.paths) as client:
            reply = await client.command(cmd.Open(prompt=PromptSpec(text=b"Hello")))
            await client.command(cmd.Rename(title="the last word"), reply.session)
            await _quiet(client)
            assert _titles(client.state) == ["the last word"]
            while True:
                told = await asyncio.to_thread(viewer.until, "state")
                assert isinstance(told, cmd.StateMessage)
                if _titles(told.state) == ["the last word"]:
                    break
        viewer.close()


async def _quiet(client: DaemonClient) -> None:
    """Wait until nothing changes any more."""
    updates = client.updates()
    while True:
        try:
            async with asyncio.timeout(1.5):
                await anext(updates)
        except TimeoutError:
            return


def _titles(state: State) -> list[str]:
    return [session.title for session in state.sessions]


# Commands that may not act ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon(SLOW) as started:
        yield started


def order(watch: Watch, do: cmd.AnyCommand, **fields: object) -> cmd.Cmd:
    """A command as a client makes it, with other fields where they are given."""
    usual: dict[str, object] = {
        "cmd": os.urandom(16),
        "epoch": watch.client.welcome.ep,
        "session": watch.session,
        "lease_no": lease_of(watch)[0],
        "at": watch.at(),
    }
    return cmd.Cmd(do=do, **{**usual, **fields})  # type: ignore[arg-type]


async def answer(watch: Watch, message: cmd.Cmd) -> cmd.Reply:
    return await watch.client._request(message, cmd.Reply, watch.session, 60.0)


@asynccontextmanager
async def at_step_1(daemon: Daemon) -> AsyncIterator[Watch]:
    async with watching(daemon.paths) as watch:
        await watch.standing(0)
        await watch.run_to(1)
        await watch.standing(1)
        await watch.until(lambda _: lease_of(watch)[0] > 0)
        yield watch


EVERY = [kind for kind in cmd.AnyCommand.__args__ if kind is not cmd.StopDaemon]


def example(kind: Callable[[], cmd.AnyCommand]) -> cmd.AnyCommand:
    return EXAMPLES.get(kind) or kind()


@pytest.mark.fault("W2")
async def test_every_command_of_another_epoch_is_stale(daemon: Daemon) -> None:
    async with at_step_1(daemon) as watch:
        head = watch.columns.next
        for kind in (*EVERY, cmd.StopDaemon):
            reply = await answer(watch, order(watch, example(kind), epoch=b"12345678"))
            assert (reply.status, reply.code) == ("rejected", "stale"), kind
        await _nothing_happened(watch, head)


@pytest.mark.fault("W2", "S6")
async def test_every_command_under_an_old_lease_is_stale(daemon: Daemon) -> None:
    """Somebody took the lease and gave it back: the old number is of no use any more."""
    async with at_step_1(daemon) as watch, attached(daemon.paths, watch.session) as other:
        old = lease_of(watch)[0]
        await other.client.lease("take", watch.session)
        await other.client.lease("release", watch.session)
        await watch.until(lambda c: c.next >= 1 and lease_of(watch)[1] is None)
        head = (await watch.until(lambda c: c.next > 0)).next
        outside = (cmd.Open, cmd.Reopen, cmd.Release, cmd.CheckWeights)  # of no session's lease
        for kind in EVERY:
            if kind in (*FREE_FOR_ALL, *outside):
                continue
            reply = await answer(watch, order(watch, example(kind), lease_no=old))
            assert (reply.status, reply.code) == ("rejected", "stale"), kind
        await _nothing_happened(watch, head)


@pytest.mark.fault("S6", "W2")
async def test_who_was_away_past_its_time_commands_nothing(daemon: Daemon) -> None:
    """A controller that says nothing for as long as a lease lasts; another one has it when the old
    one speaks again."""
    async with watching(daemon.paths) as watch:
        await watch.standing(0)
        await watch.client.lease("release", watch.session)
        away = RawViewer(daemon)
        try:
            away.send(msgspec.structs.replace(HELLO, who="away@box"))
            away.until("welcome")
            away.send(cmd.Lease(cmd=os.urandom(16), session=watch.session, do="acquire"))
            reply = away.until("reply")
            assert isinstance(reply, cmd.Reply)
            await watch.until(lambda _: lease_of(watch) == (reply.lease_no, "away@box"))
            await watch.until(lambda _: lease_of(watch)[1] is None)
            await watch.run_to(1)
            await watch.standing(1)
            away.send(order(watch, cmd.RunTo(step=2), lease_no=reply.lease_no))
            refused = away.until("reply")
            assert isinstance(refused, cmd.Reply)
            assert (refused.status, refused.code) == ("rejected", "stale")
            await watch.run_to(2)
            assert len(await watch.standing(2)) == 2
        finally:
            away.close()


async def _nothing_happened(watch: Watch, head: int) -> None:
    """No event but the commands that ask for it now."""
    reply = await answer(watch, order(watch, cmd.RunTo(step=2), lease_no=0))
    if reply.code == "no_lease":
        reply = await answer(watch, order(watch, cmd.RunTo(step=2)))
    assert reply.status == "accepted"
    columns = await watch.standing(2)
    assert len(columns) == 2
    with_take = [e for e in watch.events if e[0] >= head]
    assert len(with_take) <= 5


@pytest.mark.fault("W2")
async def test_a_command_sent_100_times_acts_once(daemon: Daemon) -> None:
    async with at_step_1(daemon) as watch:
        message = order(watch, cmd.RunTo(step=2))
        first = await answer(watch, message)
        await watch.standing(2)
        replies = [await _slowly(watch, message) for _ in range(99)]
        assert {(r.status, r.cmd) for r in (first, *replies)} == {("accepted", message.cmd)}
        await watch.run_to(3)
        columns = await watch.standing(3)
        assert len(columns) == 3


async def _slowly(watch: Watch, message: cmd.Cmd) -> cmd.Reply:
    while True:
        try:
            return await answer(watch, message)
        except InspectError as error:
            if error.code != "slow_down":
                raise
            await asyncio.sleep(0.1)


@pytest.mark.fault("W2")
async def test_commands_out_of_order_act_where_they_were_meant(daemon: Daemon) -> None:
    """The second of two steps comes first: it is refused, and the place it finds is told."""
    async with at_step_1(daemon) as watch:
        second = order(watch, cmd.RunTo(step=3), at=cmd.At(branch=0, step=2))
        first = order(watch, cmd.RunTo(step=2))
        reply = await answer(watch, second)
        assert (reply.code, reply.at) == ("stale", cmd.At(branch=0, step=1))
        assert (await answer(watch, first)).status == "accepted"
        await watch.standing(2)
        # Its number was used up: sent again, it is refused again, though it would fit now.
        assert (await answer(watch, second)).code == "stale"
        assert (await answer(watch, first)).status == "accepted"
        await watch.run_to(3)
        assert len(await watch.standing(3)) == 3


# Other versions -----------------------------------------------------------------------------------

OLD = Path(__file__).parent / "old" / "viewer-1.0.frames"
OLD_EPOCH, OLD_SESSION = b"OLDEPOCH", "0LDSESSN"
OLD_COMMANDS = (b"OLD-COMMAND-0001", b"OLD-COMMAND-0002")


def conversation() -> list[list[bytes]]:
    """What a viewer of protocol 1.0 says; the bytes on file are what counts."""
    run = cmd.Cmd(
        cmd=OLD_COMMANDS[0],
        epoch=OLD_EPOCH,
        do=cmd.RunTo(step=1),
        session=OLD_SESSION,
        at=cmd.At(branch=0, step=0),
    )
    said: list[cmd.Message] = [
        cmd.Hello(min=1, max=1, caps=["force"], client="tui 0.1.0", who="ann@box"),
        cmd.Sub(session=OLD_SESSION, start=0, win_bytes=2 * 1024 * 1024),
        cmd.Ping(),
        cmd.AskRequest(ask=AskEvents(seqs=[0]), session=OLD_SESSION),
        run,
        cmd.Ack(session=OLD_SESSION, next=1),
        cmd.Lease(cmd=OLD_COMMANDS[1], session=OLD_SESSION, do="acquire"),
        cmd.Unsub(session=OLD_SESSION),
    ]
    return [
        [b"LI\x01\x00", *seal(one, id=n, session=OLD_SESSION)[1:]]
        for n, one in enumerate(said, start=1)
    ]


@pytest.fixture(scope="module")
def old_frames() -> list[list[bytes]]:
    if not OLD.exists() and os.environ.get("LLM_INSPECT_MAKE_GOLDEN") == "1":
        OLD.parent.mkdir(exist_ok=True)
        OLD.write_bytes(msgpack.packb(conversation()))
    frames: list[list[bytes]] = msgpack.unpackb(OLD.read_bytes())
    return frames


def aged(frames: list[bytes], minor: int, epoch: bytes, session: str) -> list[bytes]:
    """Those frames from a client of another minor version, to this daemon and session.

    A newer one says more than is known here.
    """
    changes = {OLD_EPOCH: epoch, OLD_SESSION.encode(): session.encode()}
    changes |= {known: os.urandom(16) for known in OLD_COMMANDS}
    for known, now in changes.items():
        frames = [part.replace(known, now) for part in frames]
    magic, header, body = frames
    if minor > MINOR:
        fields = msgpack.unpackb(header)
        later = {"later": [1, {"x": None}]}
        header = msgpack.packb(fields | {"hop": 1})
        body = msgpack.packb(msgpack.unpackb(body) | later)
    return [magic[:3] + bytes([minor]), header, body]


@pytest.mark.fault("W5")
@pytest.mark.parametrize("minor", sorted({0, MINOR, MINOR + 1, 255}))
async def test_a_client_of_another_minor_version_is_served(
    daemon: Daemon, minor: int, old_frames: list[list[bytes]]
) -> None:
    """N - 1 as it was recorded, N, N + 1 with fields and headers nobody here knows."""
    async with watching(daemon.paths) as watch:
        await watch.standing(0)
        await watch.client.lease("release", watch.session)
        viewer = RawViewer(daemon)
        try:
            answers = {}
            for frames in old_frames:
                sent = aged(frames, minor, watch.client.welcome.ep, watch.session)
                viewer.socket.send_multipart(sent)
                kind = msgpack.unpackb(frames[1])["t"]
                expected = {
                    "hello": "welcome",
                    "sub": "batch",
                    "ping": "pong",
                    "ask": "answer",
                    "cmd": "reply",
                    "lease": "reply",
                }.get(kind)
                if expected is not None:
                    answers[kind] = viewer.until(expected)
            welcome, batch = answers["hello"], answers["sub"]
            assert isinstance(welcome, cmd.Welcome)
            assert welcome.ver == f"{MAJOR}.{MINOR}"
            assert isinstance(batch, cmd.Batch)
            assert batch.ev == watch.events[: len(batch.ev)]
            for kind in ("cmd", "lease"):
                reply = answers[kind]
                assert isinstance(reply, cmd.Reply)
                assert reply.status == "accepted"
            await watch.standing(1)
        finally:
            viewer.close()


@pytest.mark.fault("W5")
def test_a_client_of_another_major_version_is_refused_in_words(
    daemon: Daemon, old_frames: list[list[bytes]]
) -> None:
    viewer = RawViewer(daemon)
    try:
        _, header, body = old_frames[0]
        viewer.socket.send_multipart([b"LI\x02\x00", header, body])
        error = viewer.until("error")
        assert isinstance(error, cmd.ErrorMessage)
        assert (error.code, error.message) == (
            "version",
            f"protocol 2.0, this side speaks {MAJOR}.{MINOR}",
        )
        # It speaks both, in its frames too: it is told which.
        viewer.send(msgspec.structs.replace(HELLO, min=2, max=3))
        refuse = viewer.until("refuse")
        assert isinstance(refuse, cmd.Refuse)
        assert (refuse.min, refuse.max) == (MAJOR, MAJOR)
        assert "speaks protocol" in refuse.text
    finally:
        viewer.close()
