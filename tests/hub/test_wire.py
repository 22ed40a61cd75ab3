"""What arrives at the viewers' socket: slow viewers, garbage, other versions, floods."""

import asyncio
import random
import socket

import pytest
import zmq

from engine_daemon.client import DaemonClient
from engine_daemon.hub.viewers import MOST_ASKS
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.codec import MAGIC, decode_body, open_envelope, seal
from engine_daemon.protocol.reads import AskEncode, AskEvents
from engine_daemon.protocol.values import PromptSpec
from tests.daemons import (
    Daemon,
    running_daemon,
    watching,
)

SLOW = "scripted:rate=200"


def _hello() -> cmd.Hello:
    return cmd.Hello(min=1, max=1, caps=[], client="raw", who="me")


class RawViewer:
    """A bare DEALER: what a foreign or broken client may send."""

    def __init__(self, daemon: Daemon, name: bytes = b"") -> None:
        """`name`: the routing id it asks for; empty: none, as viewers do."""
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        if name:
            self.socket.setsockopt(zmq.ROUTING_ID, name)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(f"ipc://{daemon.paths.viewer_socket}")

    def send(self, message: cmd.Message) -> None:
        self.socket.send_multipart(seal(message, id=1))

    def receive(self, patience_s: float) -> tuple[str, cmd.Message] | None:
        if not self.socket.poll(int(patience_s * 1000)):
            return None
        envelope, body = open_envelope(self.socket.recv_multipart())
        return envelope.t, decode_body(body, cmd.FROM_HUB[envelope.t])

    def until(self, kind: str) -> cmd.Message:
        while (received := self.receive(10.0)) is not None:
            if received[0] == kind:
                return received[1]
        raise AssertionError(f"no {kind} came")

    def batches_until_quiet(self) -> list[cmd.Batch]:
        batches = []
        while (received := self.receive(0.7)) is not None:
            if isinstance(received[1], cmd.Batch):
                batches.append(received[1])
        return batches

    def quiet(self) -> list[str]:
        """The kinds of what still comes, until nothing does."""
        kinds = []
        while (received := self.receive(0.7)) is not None:
            kinds.append(received[0])
        return kinds

    def drain(self) -> None:
        while self.receive(0.0) is not None:
            pass

    def close(self) -> None:
        self.socket.close()
        self.context.term()


@pytest.mark.fault("S14")
async def test_a_viewer_that_never_acknowledges_gets_its_window_and_no_more() -> None:
    with running_daemon("scripted:rate=0") as daemon:
        async with watching(daemon.paths, run_to=2000) as watch:
            await watch.standing(2000)
            viewer = RawViewer(daemon)
            viewer.send(_hello())
            viewer.until("welcome")
            viewer.send(cmd.Sub(session=watch.session, start=0, win_bytes=300_000))
            batches = viewer.batches_until_quiet()
            size = sum(len(packed) for batch in batches for _, packed in batch.ev)
            assert 150_000 < size < 600_000
            assert batches[-1].to < len(watch.events)
            viewer.send(cmd.Ack(session=watch.session, next=batches[-1].to))
            more = viewer.batches_until_quiet()
            assert more[0].start == batches[-1].to
            viewer.close()


@pytest.mark.fault("W1")
async def test_garbage_on_the_socket_leaves_the_hub_serving() -> None:
    rng = random.Random(7)
    with running_daemon(SLOW) as daemon:
        async with watching(daemon.paths) as watch:
            await watch.standing(0)
            viewer = RawViewer(daemon)
            good = seal(_hello())
            for turn in range(2000):
                viewer.socket.send_multipart(_mutated(good, rng, turn))
                viewer.drain()
            viewer.close()
            for _ in range(50):
                raw = socket.socket(socket.AF_UNIX)
                raw.connect(str(daemon.paths.viewer_socket))
                raw.sendall(rng.randbytes(200))
                raw.close()
            await watch.run_to(3)
            await watch.standing(3)


def _mutated(frames: list[bytes], rng: random.Random, turn: int) -> list[bytes]:
    changed = [bytearray(part) for part in frames]
    match turn % 5:
        case 0:
            part = changed[rng.randrange(3)]
            part[rng.randrange(len(part))] ^= 1 << rng.randrange(8)
        case 1:
            part = changed[rng.randrange(3)]
            del part[rng.randrange(len(part)) :]
        case 2:
            changed = changed[: rng.randrange(1, 3)]
        case 3:
            changed = [bytearray(MAGIC), changed[1], bytearray(b"\x91" * 5000)]
        case _:
            changed = [bytearray(rng.randbytes(rng.randrange(1, 60))) for _ in range(3)]
    return [bytes(part) for part in changed]


async def test_a_viewer_that_is_gone_is_forgotten() -> None:
    with running_daemon() as daemon:
        async with DaemonClient(daemon.paths) as watcher:
            viewer = RawViewer(daemon)
            viewer.send(_hello())
            viewer.until("welcome")
            async with asyncio.timeout(5):
                async for _ in watcher.updates():
                    if len(watcher.state.viewers) == 2:
                        break
                viewer.close()
                async for _ in watcher.updates():
                    if len(watcher.state.viewers) == 1:
                        break


@pytest.mark.fault("W5")
async def test_another_major_version_is_refused_in_words() -> None:
    with running_daemon() as daemon:
        viewer = RawViewer(daemon)
        viewer.send(cmd.Hello(min=9, max=9, caps=[], client="new", who="me"))
        refuse = viewer.until("refuse")
        assert isinstance(refuse, cmd.Refuse)
        assert (refuse.code, refuse.min) == ("version", 1)
        viewer.close()


@pytest.mark.fault("S14")
async def test_more_than_200_commands_at_once_are_slowed_down() -> None:
    with running_daemon() as daemon:
        viewer = RawViewer(daemon)
        viewer.send(_hello())
        viewer.until("welcome")
        for _ in range(400):
            viewer.send(cmd.AskRequest(ask=AskEvents(seqs=[0]), session="NONE"))
        error = viewer.until("error")
        assert isinstance(error, cmd.ErrorMessage)
        assert error.code == "slow_down"
        viewer.close()


@pytest.mark.fault("S14")
async def test_a_flood_of_long_reads_is_refused_and_hurts_nobody() -> None:
    """Of one viewer so many are taken as the specification says, the rest is `busy` at once; the
    tokens process goes on, and so does whoever else asks."""
    text = b"a b c d " * (64 * 1024)
    with running_daemon(SLOW) as daemon:
        raw = RawViewer(daemon)
        try:
            raw.send(_hello())
            raw.until("welcome")
            for _ in range(12):
                raw.send(cmd.AskRequest(ask=AskEncode(prompt=PromptSpec(text=text))))
            answers = [raw.until("answer") for _ in range(12)]
            codes = sorted(one.code for one in answers if isinstance(one, cmd.Answer))
            assert codes == [""] * MOST_ASKS + ["busy"] * (12 - MOST_ASKS)
            async with watching(daemon.paths, run_to=2) as watch:
                await watch.standing(2)
            raw.send(_hello())
            raw.until("welcome")
            raw.send(cmd.AskRequest(ask=AskEncode(prompt=PromptSpec(text=b"again"))))
            answer = raw.until("answer")
            assert isinstance(answer, cmd.Answer)
            assert answer.code == ""
        finally:
            raw.socket.close()
            raw.context.term()


async def test_hello_again_gives_no_new_burst() -> None:
    with running_daemon(SLOW) as daemon:
        raw = RawViewer(daemon)
        try:
            for _ in range(3):
                raw.send(_hello())
                for _ in range(150):
                    raw.send(cmd.AskRequest(ask=AskEvents(seqs=[])))
            assert "error" in raw.quiet()
        finally:
            raw.socket.close()
            raw.context.term()
