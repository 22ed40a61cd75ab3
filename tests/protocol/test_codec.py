"""The envelope and the bodies: limits, rejection of everything else, no other exception."""

import contextlib

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.protocol.codec import (
    BODY_LIMIT,
    HEADER_LIMIT,
    MAGIC,
    MAJOR,
    TEXT_LIMIT,
    WireError,
    body_limit,
    decode_body,
    open_envelope,
    pack_event,
    seal,
    unpack_event,
)
from engine_daemon.protocol.commands import FROM_HUB, FROM_VIEWER, Cmd, Message, Unsub
from engine_daemon.protocol.events import Event, Stopped, UnknownEvent
from engine_daemon.protocol.worker import FROM_CHILD, TO_CHILD
from tests.protocol.samples import SAMPLES

MESSAGES = {name: m for name, m in SAMPLES.items() if isinstance(m, Message)}
EVENTS = {name: e for name, e in SAMPLES.items() if isinstance(e, Event)}
BODIES: list[type[Message]] = [
    kind for table in (FROM_VIEWER, FROM_HUB, TO_CHILD, FROM_CHILD) for kind in table.values()
]
BOMBS = [
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\x91" * 100_000,
    b"\x81\xa1k" * 50_000,
    b"\xdd\x00\x0f\xff\xff" * 1000,
    b"\xc7\x05\x01hello",
    b"\xd4\x01a",
    b"\x81\x01\x02",
    b"",
]


@pytest.mark.parametrize("name", MESSAGES)
def test_every_message_survives_the_envelope(name: str) -> None:
    message = MESSAGES[name]
    header, body = open_envelope(seal(message, id=3))
    assert header.id == 3
    assert decode_body(body, type(message)) == message


def test_an_absent_optional_header_is_none() -> None:
    header, _ = open_envelope(seal(Unsub(session="X")))
    assert (header.t, header.re, header.ep, header.viewer, header.session) == (
        "unsub",
        None,
        None,
        None,
        None,
    )


def test_a_header_may_grow() -> None:
    magic, _, body = seal(Unsub(session="X"))
    header, _ = open_envelope([magic, msgpack.packb({"t": "unsub", "id": 1, "later": True}), body])
    assert header.t == "unsub"


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_three_frames_or_none(count: int) -> None:
    with pytest.raises(WireError) as caught:
        open_envelope([MAGIC] * count)
    assert caught.value.code == "bad_frames"


@pytest.mark.parametrize("magic", [b"", b"LI", b"XX\x01\x00", b"LI\x01\x00\x00"])
def test_another_magic_is_refused(magic: bytes) -> None:
    _, header, body = seal(Unsub(session="X"))
    with pytest.raises(WireError) as caught:
        open_envelope([magic, header, body])
    assert caught.value.code == "bad_frames"


@pytest.mark.fault("W5")
def test_another_major_is_named() -> None:
    _, header, body = seal(Unsub(session="X"))
    with pytest.raises(WireError, match=r"protocol 2\.7") as caught:
        open_envelope([b"LI" + bytes([MAJOR + 1, 7]), header, body])
    assert caught.value.code == "version"


@pytest.mark.fault("W5")
def test_another_minor_is_no_matter() -> None:
    _, header, body = seal(Unsub(session="X"))
    assert open_envelope([b"LI" + bytes([MAJOR, 99]), header, body])[0].t == "unsub"


def test_a_long_header_is_too_big() -> None:
    magic, _, body = seal(Unsub(session="X"))
    header = msgpack.packb({"t": "unsub", "id": 1, "session": "x" * HEADER_LIMIT})
    with pytest.raises(WireError) as caught:
        open_envelope([magic, header, body])
    assert (caught.value.code, caught.value.limit) == ("too_big", HEADER_LIMIT)


@pytest.mark.parametrize("bomb", BOMBS, ids=range(len(BOMBS)))
@pytest.mark.fault("W1")
def test_bombs_in_every_place_are_refused(bomb: bytes) -> None:
    magic, _, body = seal(Unsub(session="X"))
    with pytest.raises(WireError):
        open_envelope([magic, bomb[:HEADER_LIMIT], body])
    with pytest.raises(WireError):
        decode_body(bomb, Cmd)
    with pytest.raises(WireError):
        unpack_event(bomb)


def test_limits_leave_room_for_a_text_of_the_full_size() -> None:
    assert body_limit("cmd") > TEXT_LIMIT
    assert body_limit("ask") > TEXT_LIMIT
    assert body_limit("hello") == BODY_LIMIT


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_is_unpacked_to_itself(name: str) -> None:
    assert unpack_event(pack_event(EVENTS[name])) == EVENTS[name]


def test_an_unknown_kind_is_kept_and_named() -> None:
    packed = msgpack.packb({"k": "Teleport", "t_ns": 1, "wall_ns": 2, "parent": 0})
    assert unpack_event(packed) == UnknownEvent("Teleport")


def test_an_unknown_key_is_skipped() -> None:
    stopped = Stopped(t_ns=1, wall_ns=2, reason="goal", pending=True)
    fields = msgpack.unpackb(pack_event(stopped)) | {"later": {"x": [1]}}
    assert unpack_event(msgpack.packb(fields)) == stopped


def test_a_known_kind_with_a_wrong_type_is_refused() -> None:
    packed = msgpack.packb({"k": "Stopped", "t_ns": "1", "wall_ns": 2})
    with pytest.raises(WireError):
        unpack_event(packed)


frames = st.lists(st.binary(max_size=80), max_size=5)


@given(frames)
@pytest.mark.fault("W1")
def test_random_frames_raise_nothing_else(parts: list[bytes]) -> None:
    with contextlib.suppress(WireError):
        open_envelope(parts)


@given(
    st.sampled_from(sorted(SAMPLES)),
    st.sampled_from(BODIES),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    st.integers(0, 10_000),
)
@pytest.mark.fault("W1")
def test_mutated_bytes_raise_nothing_else(
    name: str, kind: type[Message], changes: list[tuple[int, int]], cut: int
) -> None:
    raw = bytearray(msgspec.msgpack.encode(SAMPLES[name]))
    for at, byte in changes:
        raw[at % len(raw)] = byte
    mutated = bytes(raw[: 1 + cut % len(raw)])
    with contextlib.suppress(WireError):
        decode_body(mutated, kind)
    with contextlib.suppress(WireError):
        unpack_event(mutated)
