"""The tokens process's conversation with the hub: load a tokenizer, write its table, encode.

The only file here with a socket. Knows the messages; what ids and bytes are is decided elsewhere.
"""

import logging
from pathlib import Path
from typing import Final

import zmq

from engine_daemon.errors import InspectError
from engine_daemon.protocol.codec import WireError, decode_body, open_envelope, pack_event, seal
from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.worker import (
    TO_CHILD,
    ChildReady,
    Encode,
    Encoded,
    LoadFailed,
    LoadTokenizer,
    Resolve,
    Resolved,
    TokenizerReady,
)
from engine_daemon.tokens.encode import encode
from engine_daemon.tokens.loading import load_tokenizer
from engine_daemon.tokens.resolving import resolve_all
from engine_daemon.tokens.tokenizer import Tokenizer

_LINGER_MS: Final = 500
_log: Final = logging.getLogger(__name__)


class Service:
    """Answers the hub's messages one at a time; holds the one tokenizer of the model."""

    def __init__(self) -> None:
        self._tokenizer: Tokenizer | None = None
        self._table: PieceTable | None = None

    def answer(self, message: Message) -> Message | None:
        """The answer to a message; None when it is none of ours."""
        match message:
            case LoadTokenizer(model_dir=model_dir, pieces_path=pieces_path):
                return self._load(model_dir, Path(pieces_path))
            case Encode():
                return self._encode(message)
            case Resolve():
                return self._resolve(message)
            case _:
                _log.error("unexpected message %s", type(message).__name__)
                return None

    def _load(self, model_dir: str, pieces_path: Path) -> TokenizerReady | LoadFailed:
        self._tokenizer = None
        try:
            tokenizer = load_tokenizer(model_dir)
            table = tokenizer.table()
            table.write(pieces_path)
        except InspectError as error:
            return LoadFailed(code=error.code, message=error.message, hint=error.hint)
        except OSError as error:
            return LoadFailed(
                code="io",
                message=f"cannot write the table of tokens, {pieces_path}: {error.strerror}",
                hint="Free some space there, or move away what lies in its place",
            )
        except BaseException as error:  # noqa: BLE001  edge of the process; a panic is no Exception
            _fault(error)
            return LoadFailed(
                code="bad_tokenizer",
                message=f"the tokenizer in {model_dir} failed: {type(error).__name__}: {error}",
                hint="Download the model again, or choose another one with --model",
            )
        self._tokenizer, self._table = tokenizer, table
        return TokenizerReady(
            tokenizer_id=tokenizer.tokenizer_id,
            vocabulary=len(table),
            context_length=tokenizer.context_length,
        )

    def _encode(self, request: Encode) -> Encoded:
        try:
            if self._tokenizer is None:
                raise InspectError("the tokenizer is not loaded yet", "Try again", code="no_engine")
            prompt = encode(self._tokenizer, request.prompt)
        except InspectError as error:
            return Encoded(ask=request.ask, code=error.code, message=error.message, hint=error.hint)
        except BaseException as error:  # noqa: BLE001  edge of the process; a panic is no Exception
            _fault(error)
            return Encoded(
                ask=request.ask,
                code="tokenizer",
                message=f"the tokenizer failed: {type(error).__name__}: {error}",
                hint="This is a fault in llm-inspect or the tokenizer; the log has the details",
            )
        return Encoded(ask=request.ask, prompt=pack_event(prompt))

    def _resolve(self, request: Resolve) -> Resolved:
        try:
            if self._tokenizer is None or self._table is None:
                raise InspectError("the tokenizer is not loaded yet", "Try again", code="no_engine")
            conditions, watch = resolve_all(
                self._tokenizer, self._table, request.sources, request.watch
            )
        except InspectError as error:
            return Resolved(
                ask=request.ask, code=error.code, message=error.message, hint=error.hint
            )
        except BaseException as error:  # noqa: BLE001  edge of the process; a panic is no Exception
            _fault(error)
            return Resolved(
                ask=request.ask,
                code="tokenizer",
                message=f"the tokenizer failed: {type(error).__name__}: {error}",
                hint="This is a fault in llm-inspect or the tokenizer; the log has the details",
            )
        return Resolved(ask=request.ask, conditions=conditions, watch=watch)


def _fault(error: BaseException) -> None:
    """Log a fault the process survives; raise again what is meant to end it."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    _log.error("a tokenizer failed", exc_info=error)


def serve(socket_path: str, hello: ChildReady) -> None:
    """Say hello to the hub and answer it until the process is ended."""
    service = Service()
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.LINGER, _LINGER_MS)
        socket.connect(f"ipc://{socket_path}")
        socket.send_multipart(seal(hello))
        while True:
            message = _receive(socket.recv_multipart())
            answer = None if message is None else service.answer(message)
            if answer is not None:
                socket.send_multipart(seal(answer))


def _receive(frames: list[bytes]) -> Message | None:
    try:
        envelope, body = open_envelope(frames)
        kind = TO_CHILD.get(envelope.t)
        if kind is None:
            raise WireError("bad_frames", f"unknown message {envelope.t!r}")
        return decode_body(body, kind)
    except WireError as error:
        _log.error("from the hub: %s", error.message)
        return None
