"""Rows: equal to plain dictionaries for any history, honest about what is lost, and small."""

import math
import sys
from array import array
from dataclasses import dataclass, field

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.protocol import events as e
from engine_daemon.protocol.codec import pack_event
from engine_daemon.protocol.packing import pack_ints, unpack_ints
from engine_daemon.protocol.values import Restored, Sampler
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.rows import NO_ID, NO_SEQ, Flag
from tests.recording.logs import (
    UNKNOWN,
    commanded,
    engine_started,
    fold,
    opened,
    packed,
    predicted,
    prompt_set,
    sampler_set,
    session,
    session_set,
    stepped,
    stopped,
)

finite = st.floats(0, 1000, width=32)
pieces = st.one_of(st.binary(max_size=6), st.sampled_from(["☃".encode()[:2], "☃".encode()[2:]]))


@st.composite
def a_predicted(draw: st.DrawFn, step: int) -> e.Predicted:
    return predicted(
        step,
        entropy=draw(finite),
        logsumexp=draw(st.floats(-50, 50)),
        margin=draw(st.floats(0, 1)),
        forward_ms=draw(finite),
        probe_ms=draw(finite),
        waited_ms=draw(finite),
        position=3 + step,
        processed=draw(st.integers(1, 9)),
        phase=draw(st.sampled_from(["prefill", "decode"])),
        after_pause=draw(st.booleans()),
        restored=draw(st.sampled_from([None, Restored(method="prefill", replayed=3, ms=1.0)])),
    )


@st.composite
def a_stepped(draw: st.DrawFn, step: int) -> e.Stepped:
    return stepped(
        step,
        token=draw(st.integers(0, 300_000)),
        piece=draw(pieces),
        special=draw(st.booleans()),
        logit=draw(st.floats(-60, 60)),
        final_logprob=draw(st.floats(-60, 0) | st.just(-math.inf)),
        rank=draw(st.integers(1, 300_000)),
        how=draw(st.sampled_from(["greedy", "sampled", "forced"])),
        pick_ms=draw(finite),
        append_ms=draw(finite),
        total_ms=draw(finite),
        stop=draw(st.sampled_from([None, None, None, "eos", "user", "condition"])),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[bytes]:
    """Whatever a hub may log: steps, repeated distributions, and other events between them."""
    log: list[bytes] = packed([opened(), session_set(), sampler_set(), prompt_set()])
    others = st.sampled_from(
        [
            UNKNOWN,
            *packed(
                [
                    engine_started(),
                    commanded("run_to", 5),
                    commanded("pause"),
                    sampler_set(3, Sampler(greedy=False, seed=9), salt=4),
                    stopped(1),
                    e.EngineLost(t_ns=1, wall_ns=2, engine=1, rank=0, signal="SIGKILL"),
                ]
            ),
        ]
    )
    for step in range(draw(st.integers(0, 6))):
        for _ in range(draw(st.integers(1, 3))):
            log += draw(st.lists(others, max_size=2))
            log.append(pack_event(draw(a_predicted(step))))
        log += draw(st.lists(others, max_size=2))
        log.append(pack_event(draw(a_stepped(step))))
    return log


@dataclass
class Plain:
    """The same, computed independently: two dictionaries by step, filled in one pass."""

    predicted: dict[int, tuple[int, dict[str, object]]] = field(default_factory=dict)
    stepped: dict[int, tuple[int, dict[str, object]]] = field(default_factory=dict)

    def take(self, seq: int, event: dict[str, object]) -> None:
        step = event.get("step", 0)
        assert isinstance(step, int)
        if event["k"] == "Predicted":
            self.predicted[step] = (seq, event)
        elif event["k"] == "Stepped":
            self.stepped[step] = (seq, event)


def plain_of(log: list[bytes]) -> Plain:
    plain = Plain()
    for seq, raw in enumerate(log):
        plain.take(seq, msgpack.unpackb(raw))
    return plain


def as_f32(value: object) -> float:
    assert isinstance(value, float)
    return array("f", [value])[0]


def number(fields: dict[str, object], name: str) -> float:
    value = fields.get(name, 0.0)
    assert isinstance(value, float)
    return value


@given(histories())
def test_columns_equal_plain_dictionaries(log: list[bytes]) -> None:
    columns, plain = Columns(), plain_of(log)
    columns.extend(enumerate(log))
    assert len(columns) == len(plain.stepped)
    assert columns.next == len(log)
    assert columns.strays == 0
    for step, (seq, chosen) in plain.stepped.items():
        seq_predicted, seen = plain.predicted[step]
        assert (columns.seq_predicted[step], columns.seq_stepped[step]) == (seq_predicted, seq)
        assert columns.ids[step] == chosen["id"]
        assert columns.piece(step) == chosen["piece"]
        assert columns.rank[step] == chosen["rank"]
        assert columns.special(step) == chosen["special"]
        assert columns.how(step) == chosen["how"]
        for name in ("pick_ms", "append_ms", "total_ms"):
            assert getattr(columns, name)[step] == as_f32(chosen[name])
        for name in ("forward_ms", "probe_ms", "waited_ms"):
            assert getattr(columns, name)[step] == as_f32(number(seen, name))
        raw = min(number(chosen, "logit") - number(seen, "logsumexp"), 0.0)
        assert columns.prob[step] == math.exp(raw)
        assert columns.final_prob[step] == math.exp(number(chosen, "final_logprob"))
        assert columns.entropy[step] == seen["entropy_bits"]
        assert columns.margin[step] == seen["margin"]
        assert columns.position[step] == seen["position"]
        assert columns.processed[step] == seen["processed"]
        flags = Flag(columns.flags[step])
        assert (Flag.AFTER_PAUSE in flags) == seen.get("after_pause", False)
        assert (Flag.PREFILL in flags) == (seen["phase"] == "prefill")
        assert (Flag.RESTORED in flags) == (seen.get("restored") is not None)
        assert (Flag.EOS in flags) == (chosen.get("stop") == "eos")
        assert Flag.LOST not in flags
    contributed = [
        b"" if chosen["special"] else chosen["piece"] for _, chosen in plain.stepped.values()
    ]
    assert columns.text() == b"".join(part for part in contributed if isinstance(part, bytes))
    ids = [chosen["id"] for _, chosen in plain.stepped.values()]
    assert columns.path_ids() == [257, 10, 11, *ids]
    assert unpack_ints("I", columns.generated_packed()) == ids


@given(histories(), st.data())
def test_any_batches_give_the_same(log: list[bytes], data: st.DataObject) -> None:
    whole, parts = Columns(), Columns()
    whole.extend(enumerate(log))
    batch = list(enumerate(log))
    while parts.next < len(log):
        size = data.draw(st.integers(1, len(log)))
        parts.extend(batch[parts.next : parts.next + size])
    assert state_of(whole) == state_of(parts)


def state_of(columns: Columns) -> dict[str, object]:
    """Everything in it, comparable."""
    return {
        name: value.tolist() if isinstance(value, array) else value
        for name, value in vars(columns).items()
    } | {"place": columns.place, "status": columns.status}


@given(histories(), st.data())
def test_what_is_lost_is_flagged_and_the_rest_is_right(
    log: list[bytes], data: st.DataObject
) -> None:
    kept = data.draw(st.sets(st.sampled_from(range(len(log)))))
    columns, full = Columns(), Columns()
    full.extend(enumerate(log))
    for seq in sorted(kept):
        columns.skip(seq)
        columns.apply(seq, log[seq])
    plain = plain_of(log)
    for step in range(len(columns)):
        sound = columns.seq_stepped[step] in kept and columns.seq_predicted[step] in kept
        assert sound != bool(columns.flags[step] & Flag.LOST)
        if columns.seq_stepped[step] == NO_SEQ:
            assert (columns.ids[step], columns.piece(step)) == (NO_ID, b"")
        else:
            assert columns.seq_stepped[step] == plain.stepped[step][0]
            assert columns.ids[step] == full.ids[step]
            assert columns.piece(step) == full.piece(step)
        if not sound:
            assert math.isnan(columns.prob[step])
            assert math.isnan(columns.entropy[step])
    assert columns.strays == 0
    assert columns.complete == (columns.next == len(kept))


def test_numbers_out_of_range_do_not_end_the_reading() -> None:
    columns = fold(
        predicted(0, position=-1, processed=2**63, logsumexp=math.nan, forward_ms=1e300),
        stepped(0, token=2**40, rank=-5, final_logprob=5.0),
    )
    assert (columns.position[0], columns.processed[0], columns.rank[0]) == (0, NO_ID, 0)
    assert math.isnan(columns.prob[0])
    assert columns.final_prob[0] == 1.0


def test_negative_steps_are_no_way_to_count_from_the_end() -> None:
    with pytest.raises(IndexError):
        fold(*session()).piece(-1)


def test_a_step_costs_at_most_120_bytes() -> None:
    columns, count = Columns(), 20_000
    shown, picked = predicted(0), stepped(0)
    for step in range(count):
        columns.add_step(picked, step, shown, step)
    held = (getattr(columns, name) for name in vars(columns))
    sizes = [sys.getsizeof(value) for value in held if isinstance(value, array | bytearray)]
    assert len(sizes) == 19
    assert sum(sizes) / count <= 120
    assert len(pack_ints("I", columns.ids)) == 4 * count
