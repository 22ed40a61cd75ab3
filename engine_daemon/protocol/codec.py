"""Bytes ⇄ messages: the three-frame envelope, its limits, and packed events.

Everything from outside passes `open_envelope` and `decode_body`; whatever is wrong with it comes
out as one exception, `WireError`. Knows no sockets.
"""

from typing import Final, TypeVar

import msgpack
import msgspec

from engine_daemon.protocol.commands import FROM_HUB, FROM_VIEWER, Message
from engine_daemon.protocol.events import EVENTS, Event, UnknownEvent

MAJOR: Final = 1
MINOR: Final = 0
VERSION: Final = f"{MAJOR}.{MINOR}"
MAGIC: Final = b"LI" + bytes([MAJOR, MINOR])
HEADER_LIMIT: Final = 512
BODY_LIMIT: Final = 64 * 1024
TEXT_LIMIT: Final = 8 * 1024 * 1024
"""Body limit of `open` and `encode`, and of everything the hub sends."""
_ENVELOPE_SLACK: Final = 4096
"""What a body may hold besides a text of TEXT_LIMIT bytes."""
CAPS: Final = (
    "force",
    "set_sampler",
    "ask.events",
    "ask.encode",
    "conditions",
    "set_watch",
    "ask.condition",
    "reopen",
    "rename",
    "lease",
    "snapshot",
    "note",
)

M = TypeVar("M", bound=Message)

_NAMES: Final[dict[type[Message], str]] = {
    body: t for table in (FROM_VIEWER, FROM_HUB) for t, body in table.items()
}
_ENCODER: Final = msgspec.msgpack.Encoder()
_EVENT_DECODERS: Final = {
    str(event.__struct_config__.tag): msgspec.msgpack.Decoder(event) for event in EVENTS
}


class _Kind(msgspec.Struct):
    k: str


_KIND: Final = msgspec.msgpack.Decoder(_Kind)
_BAD: Final = (ValueError, TypeError, KeyError, RecursionError, MemoryError, OverflowError)


class WireError(Exception):
    """A message or frame that cannot be used. `code`: `bad_frames|bad_body|too_big|version`."""

    def __init__(self, code: str, message: str, limit: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.limit = limit


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The header: `t` type, `id` sender's counter, `re` id answered, `ep` epoch."""

    t: str
    id: int = 0
    re: int | None = None
    ep: bytes | None = None
    viewer: bytes | None = None
    session: str | None = None


def name(table: dict[str, type[Message]]) -> None:
    """Know these bodies by their `t`, too: those between hub and children are no viewer's."""
    _NAMES.update({body: t for t, body in table.items()})


def seal(
    message: Message,
    *,
    id: int = 0,  # noqa: A002  the wire's name for it
    re: int | None = None,
    ep: bytes | None = None,
    viewer: bytes | None = None,
    session: str | None = None,
) -> list[bytes]:
    """The three frames of a message."""
    body = encode_body(message)
    return sealed(type(message), body, id=id, re=re, ep=ep, viewer=viewer, session=session)


def sealed(
    kind: type[Message],
    body: bytes,
    *,
    id: int = 0,  # noqa: A002
    re: int | None = None,
    ep: bytes | None = None,
    viewer: bytes | None = None,
    session: str | None = None,
) -> list[bytes]:
    """The three frames of a message whose body is encoded."""
    optional = {"re": re, "ep": ep, "viewer": viewer, "session": session}
    header: dict[str, object] = {"t": _NAMES[kind], "id": id}
    header |= {key: value for key, value in optional.items() if value is not None}
    return [MAGIC, msgpack.packb(header), body]


def encode_body(message: Message) -> bytes:
    """The body of a message."""
    return _ENCODER.encode(message)


def open_envelope(frames: list[bytes]) -> tuple[Envelope, bytes]:
    """Header and raw body of three frames; WireError when they are not ours."""
    if len(frames) != 3:
        raise WireError("bad_frames", f"a message has 3 frames, this one has {len(frames)}")
    magic, header, body = frames
    if len(magic) != 4 or magic[:2] != b"LI":
        raise WireError("bad_frames", "not an llm-inspect message")
    if magic[2] != MAJOR:
        raise WireError("version", f"protocol {magic[2]}.{magic[3]}, this side speaks {VERSION}")
    if len(header) > HEADER_LIMIT:
        raise WireError("too_big", f"header of {len(header)} bytes", HEADER_LIMIT)
    try:
        fields = msgpack.unpackb(
            header,
            raw=False,
            strict_map_key=True,
            max_ext_len=0,
            max_map_len=16,
            max_array_len=0,
            max_str_len=HEADER_LIMIT,
            max_bin_len=HEADER_LIMIT,
        )
        return msgspec.convert(fields, Envelope), body
    except _BAD as error:
        raise WireError("bad_frames", f"unreadable header: {error}") from None


def body_limit(t: str) -> int:
    """How many bytes the body of a viewer's message of type `t` may have."""
    return TEXT_LIMIT + _ENVELOPE_SLACK if t in ("cmd", "ask") else BODY_LIMIT


def decode_body(body: bytes, kind: type[M]) -> M:
    """Body → struct, checked against its types; WireError otherwise."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except _BAD as error:
        raise WireError("bad_body", f"not a {kind.__name__}: {error}") from None


def pack_event(event: Event) -> bytes:
    """The bytes of an event, for wire and recording alike."""
    return _ENCODER.encode(event)


def unpack_event(packed: bytes) -> Event | UnknownEvent:
    """Inverse of `pack_event`; WireError when the bytes are no event at all."""
    try:
        kind = _KIND.decode(packed).k
        decoder = _EVENT_DECODERS.get(kind)
        return UnknownEvent(kind) if decoder is None else decoder.decode(packed)
    except _BAD as error:
        raise WireError("bad_body", f"not an event: {error}") from None
