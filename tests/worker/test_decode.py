"""The decode loop over the scripted engine, in this process: no socket, no second session."""

import math
from collections.abc import Sequence

import pytest

from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.synthetic import EOS_ID
from engine_daemon.protocol.values import Sampler
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.tokens.builtin import BuiltinTokenizer
from engine_daemon.worker.backends.base import Forward, SessionCache
from engine_daemon.worker.backends.scripted import ScriptedBackend
from engine_daemon.worker.decode import DecodeSession
from engine_daemon.worker.engine import Engine
from engine_daemon.worker.outcomes import Append, Prediction, draw
from tests.worker.conftest import PROMPT, opening


class CountingBackend(ScriptedBackend):
    """The scripted engine, with a note of what each forward was given."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []

    def forward(self, ids: Sequence[int], cache: SessionCache) -> Forward:
        self.reads.append(len(ids))
        return super().forward(ids, cache)


def engine(script: str = "") -> tuple[Engine, CountingBackend]:
    backend = CountingBackend()
    options = EngineOptions(backend="scripted", model=f"scripted:rate=0,{script}")
    loaded = backend.load(options, "", _ignore)
    return Engine(backend, loaded, BuiltinTokenizer().table()), backend


def _ignore(stage: str, done: int, total: int) -> None:
    pass


def drive(session: DecodeSession, steps: int) -> list[Append]:
    """Commit so many steps; leaves the session after the last append."""
    loop = session.steps()
    made = []
    for _ in range(steps):
        assert isinstance(next(loop), Prediction)
        append = next(loop)
        assert isinstance(append, Append)
        made.append(append)
    return made


# SHA-256 of three little-endian u64, worked out with sha256sum(1).
KNOWN_DRAWS = [
    ((0, 0, 0), "9d908ecfb6b256de"),
    ((7, 0, 3), "54601c01aeab94d4"),
    ((2**64 - 1, 2, 1000), "439d661601c9175b"),
]


@pytest.mark.parametrize(("key", "digest"), KNOWN_DRAWS)
def test_draw_is_the_hash_of_seed_salt_and_step(key: tuple[int, int, int], digest: str) -> None:
    assert draw(*key) == (int(digest, 16) >> 11) / 2**53


def test_draws_are_spread_over_the_unit_interval() -> None:
    values = [draw(11, 0, step) for step in range(2000)]
    assert 0.0 <= min(values) < 0.01
    assert 0.99 < max(values) < 1.0
    assert sum(values) / len(values) == pytest.approx(0.5, abs=0.03)
    assert len(set(values)) == len(values)


def test_nothing_happens_before_it_is_asked_for() -> None:
    shared, backend = engine()
    session = DecodeSession(shared, opening())
    loop = session.steps()
    assert backend.reads == []
    prediction = next(loop)
    assert isinstance(prediction, Prediction)
    assert (session.step, backend.reads) == (0, [len(PROMPT)])
    append = next(loop)
    assert isinstance(append, Append)
    assert (append.step, session.step, session.pending) == (0, 1, None)
    assert backend.reads == [len(PROMPT)]
    next(loop)
    assert backend.reads == [len(PROMPT), 1]


def test_what_a_step_reports() -> None:
    shared, _ = engine()
    session = DecodeSession(shared, opening())
    loop = session.steps()
    first = next(loop)
    assert isinstance(first, Prediction)
    assert (first.phase, first.position, first.forward.processed) == ("prefill", 4, 4)
    assert first.tokenize_ms == 0.25
    assert first.cache.tokens == 4
    append = next(loop)
    assert isinstance(append, Append)
    assert append.choice.id == first.look.report.ids[0]
    assert append.piece == shared.table.piece(append.choice.id)
    expected = 0.25 + first.forward.ms + first.look.probe_ms + append.pick_ms + append.append_ms
    assert append.total_ms == pytest.approx(expected)
    assert append.pick_ms >= first.look.evaluate_ms
    second = next(loop)
    assert isinstance(second, Prediction)
    assert (second.phase, second.position, second.forward.processed) == ("decode", 5, 1)
    assert second.tokenize_ms == 0.0


def test_candidates_carry_the_bytes_that_name_them() -> None:
    shared, _ = engine()
    loop = DecodeSession(shared, opening(candidates=shared.loaded.model.vocabulary)).steps()
    prediction = next(loop)
    assert isinstance(prediction, Prediction)
    rows = prediction.look.candidates.rows()
    assert [row.piece for row in rows] == [shared.table.piece(row.id) for row in rows]
    assert {row.id for row in rows if row.special} == {256, 257, 258, 259}
    assert sum(math.exp(row.logit - prediction.look.report.logsumexp) for row in rows) == (
        pytest.approx(1.0)
    )


def test_without_a_cache_every_step_reads_everything() -> None:
    shared, _ = engine()
    loop = DecodeSession(shared, opening(cache_mode="none")).steps()
    read = []
    for made in (next(loop) for _ in range(6)):
        if isinstance(made, Prediction):
            read.append((made.position, made.forward.processed, made.phase))
            assert made.cache.growing_bytes == 0
    assert read == [(4, 4, "prefill"), (5, 5, "decode"), (6, 6, "decode")]


def test_forced_and_sampled_picks() -> None:
    shared, _ = engine()
    session = DecodeSession(
        shared, opening(sampler=Sampler(greedy=False, temperature=2.0, seed=9), salt=4)
    )
    loop = session.steps()
    next(loop)
    forced = loop.send(65)
    assert isinstance(forced, Append)
    assert (forced.choice.id, forced.choice.how, forced.piece) == (65, "forced", b"A")
    assert session.path[-1] == 65
    next(loop)
    sampled = loop.send(None)
    assert isinstance(sampled, Append)
    assert (sampled.choice.how, sampled.choice.draw) == ("sampled", draw(9, 4, 1))


def test_another_sampler_costs_no_forward_and_keeps_the_forward_told() -> None:
    shared, backend = engine()
    session = DecodeSession(shared, opening())
    loop = session.steps()
    before = next(loop)
    after = session.resample(Sampler(greedy=False, top_k=2, seed=1), 3)
    assert isinstance(before, Prediction)
    assert after is not None
    assert after.forward is before.forward
    assert after.tokenize_ms == before.tokenize_ms
    assert after.look.report.logits == before.look.report.logits
    assert after.look.report.dropped_by != before.look.report.dropped_by
    append = next(loop)
    assert isinstance(append, Append)
    assert append.choice.draw == draw(1, 3, 0)
    assert len(backend.reads) == 1


def test_a_sampler_set_after_the_end_counts_from_the_next_step() -> None:
    shared, _ = engine()
    session = DecodeSession(shared, opening())
    loop = session.steps()
    next(loop), next(loop)
    assert session.resample(Sampler(greedy=False, seed=2), 0) is None
    next(loop)
    append = next(loop)
    assert isinstance(append, Append)
    assert append.choice.how == "sampled"


def test_a_path_depends_on_seed_and_ids_alone() -> None:
    sampler = Sampler(greedy=False, temperature=1.5, seed=21)
    shared, _ = engine()
    whole = [it.choice.id for it in drive(DecodeSession(shared, opening(sampler=sampler)), 30)]
    half = pack_ints("I", whole[:15])
    rest = drive(DecodeSession(shared, opening(sampler=sampler, ids=half, restored=True)), 15)
    assert whole[15:] == [it.choice.id for it in rest]
    assert len(set(whole)) > 10


def test_a_restored_distribution_says_so_once() -> None:
    shared, _ = engine()
    ids = pack_ints("I", [300, 301, 302])
    loop = DecodeSession(shared, opening(ids=ids, restored=True, tokenize_ms=0.0)).steps()
    first = next(loop)
    assert isinstance(first, Prediction)
    assert (first.step, first.phase) == (3, "prefill")
    assert first.restored is not None
    assert first.restored.replayed == 7
    next(loop)
    second = next(loop)
    assert isinstance(second, Prediction)
    assert second.restored is None


def test_after_the_cache_was_given_back_everything_is_read_again() -> None:
    shared, backend = engine()
    session = DecodeSession(shared, opening())
    drive(session, 3)
    session.give_back()
    again = next(session.steps())
    assert isinstance(again, Prediction)
    assert again.restored is not None
    assert backend.reads[-1] == len(PROMPT) + 3


def test_end_token_length_and_context_are_told_in_this_order() -> None:
    at = len(PROMPT) + 1
    shared, _ = engine(f"eos_at={at}")
    both = drive(DecodeSession(shared, opening(max_steps=2, limit_tokens=at + 1)), 2)
    assert [it.stop for it in both] == [None, "eos"]
    assert (both[1].choice.id, both[1].special) == (EOS_ID, True)
    shared, _ = engine()
    assert drive(DecodeSession(shared, opening(max_steps=2, limit_tokens=at + 1)), 2)[1].stop == (
        "length"
    )
    assert drive(DecodeSession(shared, opening(limit_tokens=at + 1)), 2)[1].stop == "context"


def test_the_models_context_is_a_limit_too() -> None:
    shared, _ = engine(f"context={len(PROMPT) + 2}")
    assert drive(DecodeSession(shared, opening(limit_tokens=1000)), 2)[1].stop == "context"


def test_a_limit_passed_once_does_not_stop_again() -> None:
    shared, _ = engine()
    assert [it.stop for it in drive(DecodeSession(shared, opening(max_steps=2)), 5)] == [
        None,
        "length",
        None,
        None,
        None,
    ]
