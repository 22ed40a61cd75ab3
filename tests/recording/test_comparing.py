"""Two recordings side by side, against plain arithmetic."""

import math
from pathlib import Path

import msgspec
import pytest

from engine_daemon.protocol import events as e
from engine_daemon.protocol.packing import pack_floats, pack_ints
from engine_daemon.protocol.values import Candidates
from engine_daemon.recording.comparing import Comparison, Side
from engine_daemon.recording.reader import Recording
from tests.recording.logs import (
    MODEL,
    engine_started,
    framed,
    opened,
    packed,
    predicted,
    prompt_set,
    stepped,
)


def candidates(probs: dict[int, float]) -> Candidates:
    return Candidates(
        ids=pack_ints("I", probs),
        logit=pack_floats("f", [math.log(p) if p else -math.inf for p in probs.values()]),
        final_logprob=pack_floats("f", [0.0] * len(probs)),
        dropped_by=bytes(len(probs)),
        special=bytes(len(probs)),
        piece_len=pack_ints("H", [1] * len(probs)),
        pieces=bytes(i % 256 for i in probs),
    )


def session(
    ids: list[int],
    probs: list[dict[int, float]],
    *,
    dtype: str = "fp32",
    pieces: tuple[bytes, ...] = (b"Hello",),
) -> list[e.Event]:
    model = msgspec.structs.replace(MODEL, dtype=dtype)
    log: list[e.Event] = [opened(), prompt_set(pieces), engine_started(model)]
    for step, row in enumerate(probs):
        log.append(predicted(step, candidates=candidates(row), logsumexp=0.0, margin=0.1 * step))
        if step < len(ids):
            log.append(stepped(step, token=ids[step], logit=math.log(row.get(ids[step], 0.5))))
    return log


class Pair:
    """Both sides of a comparison, on disk."""

    def __init__(self, folder: Path, a: list[e.Event], b: list[e.Event]) -> None:
        for name, log in (("a", a), ("b", b)):
            (folder / name).write_bytes(b"".join(framed(packed(log))))
        self.folder = folder

    def compare(self, tolerance: float | None = None) -> Comparison:
        sides = [Side.of(Recording.open(self.folder / name)) for name in "ab"]
        return Comparison(sides[0], sides[1], tolerance)


P = {1: 0.5, 2: 0.3, 3: 0.1}
Q = {1: 0.4, 3: 0.2, 4: 0.3}


def test_delta_and_divergence_over_the_shared_candidates(tmp_path: Path) -> None:
    compared = Pair(tmp_path, session([1], [P, P]), session([1], [P, Q])).compare()
    first, second = compared.steps()
    assert (first.delta, first.kl_bits, first.shared) == (0, 0, 3)
    assert second.shared == 2
    assert second.delta == pytest.approx(0.1)
    assert {second.id} <= {1, 3}
    p, q = [0.5 / 0.6, 0.1 / 0.6], [0.4 / 0.6, 0.2 / 0.6]
    expected = sum(x * math.log2(x / y) for x, y in zip(p, q, strict=True))
    assert second.kl_bits == pytest.approx(expected, abs=1e-6)
    assert compared.parts is None
    assert compared.common == 1


def test_they_part_where_the_ids_do(tmp_path: Path) -> None:
    a, b = session([1, 2, 3], [P] * 3), session([1, 3, 3], [P] * 3)
    compared = Pair(tmp_path, a, b).compare()
    assert (compared.common, compared.parts) == (1, 1)
    assert [apart.step for apart in compared.steps()] == [0, 1]
    pick = compared.a.pick(1)
    assert (pick.id, pick.rank) == (2, 1)
    assert pick.margin == pytest.approx(0.1)
    assert pick.prob == pytest.approx(0.3)
    assert compared.b.pick(1).id == 3


def test_one_that_ends_earlier_parts_there(tmp_path: Path) -> None:
    compared = Pair(tmp_path, session([1, 2], [P] * 3), session([1], [P] * 2)).compare()
    assert (compared.common, compared.parts) == (1, 1)
    assert compared.b.pick(1).id is None
    assert len(list(compared.steps())) == 2


def test_other_prompts_have_nothing_in_common(tmp_path: Path) -> None:
    a, b = session([1], [P]), session([1], [P], pieces=(b"Hello", b" you"))
    compared = Pair(tmp_path, a, b).compare()
    assert (compared.prompt_at, compared.common) == (2, 0)
    assert list(compared.steps()) == []


@pytest.mark.parametrize(
    ("a", "b", "tolerance"),
    [("fp32", "fp32", 1e-3), ("fp32", "bf16", 0.05), ("fp16", "fp32", 1e-3)],
)
def test_the_tolerance_goes_by_what_computed(
    tmp_path: Path, a: str, b: str, tolerance: float
) -> None:
    pair = Pair(tmp_path, session([1], [P], dtype=a), session([1], [P], dtype=b))
    assert pair.compare().tolerance == tolerance
    assert pair.compare(0.0).tolerance == 0.0


def test_lost_events_are_not_compared_and_no_difference(tmp_path: Path) -> None:
    log = session([1, 2, 3], [P] * 4)
    frames = framed(packed(log))
    pair = Pair(tmp_path, log, log)
    (tmp_path / "b").write_bytes(b"".join(frames[:5] + frames[6:]))  # the second `Predicted`
    assert [apart.step for apart in pair.compare().steps()] == [0, 2, 3]
    (tmp_path / "b").write_bytes(b"".join(frames[:5] + frames[7:]))  # and its `Stepped`
    compared = pair.compare()
    assert compared.parts is None
    assert compared.common == 3
    assert [apart.step for apart in compared.steps()] == [0, 2, 3]


def test_what_one_side_excludes_is_infinitely_far(tmp_path: Path) -> None:
    masked = {1: 0.6, 2: 0.0, 3: 0.1}
    (apart,) = Pair(tmp_path, session([], [P]), session([], [masked])).compare().steps()
    assert apart.kl_bits == math.inf
    assert apart.delta == pytest.approx(0.3)
