"""Viewers that speak another version, older or newer. W5."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgpack
import msgspec
import pytest

from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.codec import MAJOR, MINOR, seal
from engine_daemon.protocol.reads import AskEvents
from tests.daemons import Daemon, running_daemon, watching
from tests.hub.test_wire import RawViewer

SLOW = "scripted:rate=200,context=100000"
HELLO = cmd.Hello(min=1, max=1, caps=[], client="raw", who="me")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon(SLOW) as started:
        yield started


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
