"""The bytes of every message, event and value, as they were when they were first written down."""

import inspect
import os
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from engine_daemon.protocol import (
    command,
    commands,
    condition_events,
    event,
    events,
    filing,
    image,
    liveness,
    reads,
    state,
    values,
    viewing,
    worker,
)
from engine_daemon.protocol.codec import decode_body, open_envelope, seal, unpack_event
from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.events import EVENTS, Event
from tests.protocol import samples
from tests.protocol.condition_samples import CONDITION_SAMPLES
from tests.protocol.samples import EPOCH, VIEWER
from tests.protocol.samples_faults import FAULT_SAMPLES
from tests.protocol.samples_filing import FILING
from tests.protocol.samples_image import IMAGE_SAMPLES

SAMPLES: dict[str, msgspec.Struct] = {
    **samples.SAMPLES,
    **CONDITION_SAMPLES,
    **FAULT_SAMPLES,
    **FILING,
    **IMAGE_SAMPLES,
}
GOLDEN = Path(__file__).parent / "golden"
MODULES: tuple[ModuleType, ...] = (
    *(command, commands, condition_events, event, events, filing, image, liveness, reads),
    *(state, values, viewing, worker),
)
INSIDE_ONLY = {"UnknownEvent", "PromptToken", "CandidateRow", "WatchedRow"}
"""Structs that are unpacked views and never cross anything."""


def structs() -> list[type[msgspec.Struct]]:
    """Every struct that crosses a process."""
    found = [
        kind
        for module in MODULES
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__ and issubclass(kind, msgspec.Struct)
    ]
    bases = {base for kind in found for base in kind.__mro__[1:]}
    return [kind for kind in found if kind not in bases and kind.__name__ not in INSIDE_ONLY]


def golden(name: str, packed: bytes) -> bytes:
    """The bytes on file; with LLM_INSPECT_MAKE_GOLDEN=1 a missing file is written."""
    path = GOLDEN / f"{name}.bin"
    if not path.exists() and os.environ.get("LLM_INSPECT_MAKE_GOLDEN") == "1":
        path.write_bytes(packed)
    assert path.exists(), f"no golden file for {name}: run with LLM_INSPECT_MAKE_GOLDEN=1"
    return path.read_bytes()


@pytest.mark.parametrize("name", SAMPLES)
def test_the_bytes_are_the_golden_ones(name: str) -> None:
    sample = SAMPLES[name]
    packed = msgspec.msgpack.encode(sample)
    assert packed == golden(name, packed), f"{name} changed on the wire: add fields, change none"


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.fault("W5")
def test_golden_bytes_are_read_back(name: str) -> None:
    sample = SAMPLES[name]
    raw = golden(name, msgspec.msgpack.encode(sample))
    assert msgspec.msgpack.decode(raw, type=type(sample)) == sample
    if isinstance(sample, Event):
        assert unpack_event(raw) == sample
    if isinstance(sample, Message):
        assert decode_body(raw, type(sample)) == sample


@pytest.mark.parametrize("kind", structs(), ids=lambda kind: kind.__name__)
def test_every_struct_has_a_sample_that_sets_every_field(kind: type[msgspec.Struct]) -> None:
    samples = [sample for sample in SAMPLES.values() if type(sample) is kind]
    assert samples, f"put a {kind.__name__} into tests/protocol/samples.py"
    for field in msgspec.structs.fields(kind):
        if field.default is not msgspec.NODEFAULT:
            values_set = [getattr(sample, field.name) for sample in samples]
            assert any(value != field.default for value in values_set), (
                f"no sample of {kind.__name__} sets {field.name}: add {kind.__name__}-2"
            )


def test_no_golden_file_is_without_a_sample() -> None:
    assert {path.stem for path in GOLDEN.glob("*.bin")} == {*SAMPLES, "envelope"}


def test_every_event_kind_is_in_the_table() -> None:
    kinds = {kind for kind in structs() if issubclass(kind, Event)}
    assert kinds == set(EVENTS)


def test_every_message_is_announced_by_a_type_name() -> None:
    tables = (commands.FROM_VIEWER, commands.FROM_HUB, worker.TO_CHILD, worker.FROM_CHILD)
    announced = [kind for table in tables for kind in table.values()]
    assert len(announced) == len(set(announced))
    assert set(announced) == {kind for kind in structs() if issubclass(kind, Message)}


def test_the_envelope_has_golden_bytes() -> None:
    message = SAMPLES["Unsub"]
    assert isinstance(message, Message)
    frames = seal(message, id=7, re=6, ep=EPOCH, viewer=VIEWER, session="7ZK3M9QP")
    assert msgspec.msgpack.encode(frames) == golden("envelope", msgspec.msgpack.encode(frames))
    header, body = open_envelope(frames)
    assert (header.t, header.id, header.re, header.ep) == ("unsub", 7, 6, EPOCH)
    assert (header.viewer, header.session) == (VIEWER, "7ZK3M9QP")
    assert decode_body(body, commands.Unsub) == message
