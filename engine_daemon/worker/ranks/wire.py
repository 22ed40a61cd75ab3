"""What the ranks of one worker say to each other, and the socket between two of them.

Rank 0 sends orders, the others replies; typed structs, each after its length. Knows no torch.
"""

import logging
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Final, Literal, NoReturn

import msgspec

from engine_daemon.protocol.worker import EngineOptions

LINGER_S: Final = 10.0
"""How long a rank that cannot go on waits for the hub to end it: the first rank that ends is the
one that is named, so one that only suffers from it must not be the first."""
_LENGTH: Final = struct.Struct("<I")

_log: Final = logging.getLogger(__name__)


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of both directions."""


# Rank 0 → others --------------------------------------------------------------------------------


class Join(Message, frozen=True, kw_only=True):
    """Get ready to load the model in `model_dir`. `devices` of all ranks, in order. Answered by
    `Joined`."""

    options: EngineOptions
    model_dir: str
    devices: list[str]


class Meet(Message, frozen=True, kw_only=True):
    """All have joined: meet in the file `store`, load. Answered by `Loading`…, `Filled` or
    `Failed`. `timeout_s`: how long a collective may take."""

    store: str
    timeout_s: float


class NewCache(Message, frozen=True, kw_only=True):
    """`cache` is an empty cache from now on."""

    cache: int
    mode: Literal["kv", "none"]


class Read(Message, frozen=True, kw_only=True):
    """Forward over `ids` (u32). `all_rows`: logits of all positions. Answered by `Done`."""

    number: int
    cache: int
    ids: bytes
    all_rows: bool = False


class Reserve(Message, frozen=True, kw_only=True):
    """Make room for `positions` in all. Answered by `Reserved`."""

    cache: int
    positions: int


class GoBack(Message, frozen=True, kw_only=True):
    """Hold the longest beginning of `ids` (u32). `park`: put aside what is beyond it."""

    cache: int
    ids: bytes
    park: bool = True


class Release(Message, frozen=True, kw_only=True):
    """Give the oldest tail or a snapshot up."""

    cache: int
    what: Literal["tail", "snapshot"]


class Free(Message, frozen=True, kw_only=True):
    """Forget the cache."""

    cache: int


class SumPart(Message, frozen=True, kw_only=True):
    """Sum the parameters in memory. Answered by `PartSummed`."""


# Others → rank 0 --------------------------------------------------------------------------------


class Joined(Message, frozen=True, kw_only=True):
    """Everything is imported."""


class Loading(Message, frozen=True, kw_only=True):
    """Bytes of the weights files that this rank is through with."""

    done: int


class Filled(Message, frozen=True, kw_only=True):
    """Its part of the model is loaded. `free_bytes`: what it can have then."""

    free_bytes: int | None


class Failed(Message, frozen=True, kw_only=True):
    """Loading failed."""

    code: str
    message: str
    hint: str


class Done(Message, frozen=True, kw_only=True):
    """The forward of this number took `ms`, device-synchronised; what the process now takes of its
    device, and all there is."""

    number: int
    ms: float
    device_used_bytes: int | None = None
    device_total_bytes: int | None = None


class Reserved(Message, frozen=True, kw_only=True):
    """`problem` empty: there is room; else what is left."""

    problem: str = ""
    free_bytes: int | None = None


class PartSummed(Message, frozen=True, kw_only=True):
    """The checksum of this rank's part."""

    checksum: str


Order = Join | Meet | NewCache | Read | Reserve | GoBack | Release | Free | SumPart
Reply = Joined | Loading | Filled | Failed | Done | Reserved | PartSummed


class GoneError(Exception):
    """The other rank has ended."""


class Channel:
    """One end of the socket between two ranks. `kind` is what arrives at this end."""

    def __init__(self, fd: int, kind: object) -> None:
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        self._decoder: msgspec.msgpack.Decoder[object] = msgspec.msgpack.Decoder(kind)
        self._encoder = msgspec.msgpack.Encoder()

    def send(self, message: Message) -> None:
        """Hand over. Raises GoneError."""
        packed = self._encoder.encode(message)
        try:
            self._socket.sendall(_LENGTH.pack(len(packed)) + packed)
        except OSError as error:
            raise GoneError from error

    def receive(self) -> object:
        """The next message, however long it takes. Raises GoneError."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        return self._decoder.decode(self._exactly(length))

    def ready(self) -> bool:
        """Something has arrived, or the other end is gone."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self._socket.recv(count - len(parts))
            except OSError as error:
                raise GoneError from error
            if not part:
                raise GoneError
            parts += part
        return bytes(parts)


def give_up(why: str, sleep: Callable[[float], None] = time.sleep) -> NoReturn:
    """This rank cannot go on: say why in the log and wait for the end of the worker."""
    _log.error("this rank cannot go on: %s", why)
    sleep(LINGER_S)
    os._exit(1)
