"""`engine_daemon.tokens.service`: the real process, spoken to through a ROUTER as the hub does."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import zmq

from engine_daemon import __version__
from engine_daemon.protocol.codec import decode_body, open_envelope, seal, unpack_event
from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.events import PromptSet
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.values import PromptSpec
from engine_daemon.protocol.worker import (
    FROM_CHILD,
    ChildReady,
    Drop,
    Encode,
    Encoded,
    LoadFailed,
    LoadTokenizer,
    TokenizerReady,
)
from engine_daemon.tokens.builtin import PIECES, TOKENIZER_ID
from tests.tokens import made

M = TypeVar("M", bound=Message)
PATIENCE_MS = 60_000


class Hub:
    """The hub's end: a ROUTER, the child and the write end of its death pipe."""

    def __init__(self, folder: Path, cwd: str = "/") -> None:
        self.folder = folder
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
        self._socket.bind(f"ipc://{folder}/e.sock")
        read_end, self._death_pipe = os.pipe()
        command = [sys.executable, "-P", "-m", "engine_daemon.tokens"]
        command += ["--socket", f"{folder}/e.sock", "--death-fd", str(read_end)]
        self.child = subprocess.Popen(command, cwd=cwd, pass_fds=(read_end,))
        os.close(read_end)
        self._route = b""
        self.hello = self.hear(ChildReady)

    def hear(self, kind: type[M]) -> M:
        """The next message, which is of this kind."""
        self._route, *frames = self._socket.recv_multipart()
        envelope, body = open_envelope(frames)
        message = decode_body(body, FROM_CHILD[envelope.t])
        assert isinstance(message, kind), message
        return message

    def say(self, message: Message) -> None:
        self.say_frames(seal(message))

    def say_frames(self, frames: list[bytes]) -> None:
        self._socket.send_multipart([self._route, *frames])

    def load(self, model_dir: str) -> TokenizerReady:
        self.say(LoadTokenizer(model_dir=model_dir, pieces_path=f"{self.folder}/pieces.bin"))
        return self.hear(TokenizerReady)

    def encode(self, text: bytes, ask: int = 1) -> Encoded:
        self.say(Encode(ask=ask, prompt=PromptSpec(text=text)))
        return self.hear(Encoded)

    def let_go(self) -> None:
        """What the end of the hub does, however it ends."""
        if self._death_pipe >= 0:
            os.close(self._death_pipe)
            self._death_pipe = -1

    def close(self) -> None:
        self.let_go()
        self.child.kill()
        self.child.wait()
        self._socket.close()
        self._context.term()


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def hub(folder: Path) -> Iterator[Hub]:
    hub = Hub(folder)
    yield hub
    hub.close()


def tokens_of(encoded: Encoded) -> list[bytes]:
    assert encoded.prompt is not None, encoded
    event = unpack_event(encoded.prompt)
    assert isinstance(event, PromptSet)
    return [token.piece for token in event.tokens()]


def test_it_says_who_it_is(hub: Hub) -> None:
    assert hub.hello == ChildReady(role="tokens", version=__version__, pid=hub.child.pid)


def test_the_built_in_tokenizer(hub: Hub) -> None:
    ready = hub.load("")
    assert (ready.tokenizer_id, ready.vocabulary) == (TOKENIZER_ID, len(PIECES))
    table = PieceTable.read(hub.folder / "pieces.bin")
    assert table.pieces == list(PIECES)
    assert tokens_of(hub.encode(b"see the end")) == [b"s", b"e", b"e", b" the", b" end"]


def test_a_real_tokenizer(hub: Hub) -> None:
    (hub.folder / "tokenizer.json").write_bytes(made.raw("Llama, prepend"))
    (hub.folder / "config.json").write_text('{"text_config": {"max_position_embeddings": 2048}}')
    ready = hub.load(str(hub.folder))
    assert ready.context_length == 2048
    table = PieceTable.read(hub.folder / "pieces.bin")
    assert len(table) == ready.vocabulary
    assert table.tokenizer_id == ready.tokenizer_id
    assert [text.ids[0] for text in table.probe] == [1, 1, 1]
    encoded = hub.encode("the é\0".encode(), ask=77)
    assert encoded.ask == 77
    assert b"".join(tokens_of(encoded)) == "<s> the é\0".encode()


def test_refusals_come_as_answers_and_the_process_goes_on(hub: Hub) -> None:
    early = hub.encode(b"too early")
    assert (early.code, early.prompt) == ("no_engine", None)
    hub.load("")
    assert hub.encode(b"").code == "empty_prompt"
    assert hub.encode(b"\xff").code == "bad_prompt"
    assert tokens_of(hub.encode(b"a")) == [b"a"]


def test_a_tokenizer_that_cannot_be_read(hub: Hub) -> None:
    hub.say(LoadTokenizer(model_dir=str(hub.folder), pieces_path=f"{hub.folder}/pieces.bin"))
    failed = hub.hear(LoadFailed)
    assert failed.code == "no_tokenizer"
    assert failed.hint
    assert not (hub.folder / "pieces.bin").exists()
    assert hub.encode(b"a").code == "no_engine"
    hub.load("")


def test_a_table_that_cannot_be_written(hub: Hub) -> None:
    hub.say(LoadTokenizer(model_dir="", pieces_path=f"{hub.folder}/missing/pieces.bin"))
    failed = hub.hear(LoadFailed)
    assert failed.code == "io"
    assert "missing/pieces.bin" in failed.message


def test_what_is_no_message_of_ours_is_passed_over(hub: Hub) -> None:
    hub.say_frames([b"x"])
    hub.say_frames([b"LI\x01\x00", b"\xff", b""])
    hub.say_frames([*seal(Encode(ask=1, prompt=PromptSpec(text=b"a")))[:2], b"\xc1"])
    hub.say(Drop(session="s"))
    hub.load("")


def test_a_megabyte(hub: Hub) -> None:
    hub.load("")
    text = b"the people said things. " * 40_000
    assert b"".join(tokens_of(hub.encode(text))) == text


def test_it_ends_with_the_hub(hub: Hub) -> None:
    hub.load("")
    hub.let_go()
    assert hub.child.wait(10) == 1


def test_it_ends_with_the_hub_while_it_works(hub: Hub) -> None:
    hub.load("")
    hub.say(Encode(ask=1, prompt=PromptSpec(text=b"ab " * 2_000_000)))
    hub.let_go()
    assert hub.child.wait(10) == 1


def test_it_ends_at_once_when_told(hub: Hub) -> None:
    hub.child.send_signal(signal.SIGTERM)
    assert hub.child.wait(10) == -signal.SIGTERM


def test_it_does_not_run_without_its_death_watch(folder: Path) -> None:
    command = [sys.executable, "-P", "-m", "engine_daemon.tokens", "--socket", f"{folder}/e.sock"]
    done = subprocess.run([*command, "--death-fd", "999"], cwd="/", capture_output=True, timeout=30)
    assert done.returncode != 0


def test_modules_in_the_working_directory_are_not_imported(folder: Path) -> None:
    for name in ("json", "tokenizers", "jinja2", "zmq", "queue", "engine_daemon"):
        (folder / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    (folder / "tokenizer.json").write_bytes(made.raw("byte level"))
    hub = Hub(folder, cwd=str(folder))
    try:
        hub.load(str(folder))
        assert tokens_of(hub.encode(b"a")) == [b"a"]
    finally:
        hub.close()
    assert not (folder / "ran").exists()
