"""What arrives at the viewers' socket: 10,000 broken messages, silence, floods. W1, S14."""

import asyncio
import contextlib
import random
import resource
import socket
import struct
from collections.abc import Callable

import msgpack
import psutil
import pytest

from engine_daemon.client import DaemonClient
from engine_daemon.hub.complaints import MOST
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.codec import MAGIC, seal
from engine_daemon.protocol.state import State
from engine_daemon.protocol.values import PromptSpec
from tests.daemons import Daemon, running_daemon, wait_for, watching
from tests.faults.load import MB
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
    """Before, in and after the handshake; at last a frame that says it has 8 GiB. The hub may hang
    up at any of it, also before all is said."""
    for said in (b"", GREETING[:20], GREETING, GREETING + READY):
        for _ in range(10):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.connect(str(daemon.paths.viewer_socket))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    raw.sendall(said + rng.randbytes(200))
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(60)
        raw.connect(str(daemon.paths.viewer_socket))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
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
