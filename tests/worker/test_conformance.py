"""What every backend must be like, one suite for all that are registered.

`hf` runs tiny random models made here, one a kind of cache, where torch is installed.
"""

import importlib.util
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.values import DroppedBy, Sampler
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.backends import BACKENDS, locate, make_backend
from engine_daemon.worker.backends.base import Backend, Distribution, Loaded, Report
from engine_daemon.worker.decode import DecodeSession
from engine_daemon.worker.engine import Engine
from engine_daemon.worker.outcomes import Append
from engine_daemon.worker.reference_sampling import filtered
from tests.worker.checkpoints import KINDS, tiny_model
from tests.worker.conftest import opening

PROMPT = [65, 66, 67, 68, 66]
TINY_VOCABULARY = 320
NEEDS = {"hf": "torch", "vllm": "vllm"}
"""What must be importable for a backend to be tried."""


@dataclass(frozen=True)
class Case:
    """A loaded backend."""

    backend: Backend
    loaded: Loaded

    @property
    def vocabulary(self) -> int:
        return self.loaded.model.vocabulary

    def after(self, ids: list[int]) -> Distribution:
        """The distribution after reading `ids` at once."""
        return self.backend.forward(ids, self.backend.new_cache("kv")).distribution

    def whole(self, ids: list[int], sampler: Sampler | None = None) -> Report:
        """Everything about the distribution after `ids`."""
        evaluation = self.after(ids).evaluate(sampler or Sampler(), ids)
        return evaluation.report(self.vocabulary)


def sampled(**fields: float) -> Sampler:
    return Sampler(greedy=False, **fields)  # type: ignore[arg-type]  # checked by msgspec


SAMPLERS = [
    Sampler(),
    Sampler(repetition_penalty=1.8, frequency_penalty=0.5),
    sampled(),
    sampled(temperature=0.0),
    sampled(temperature=0.3),
    sampled(temperature=1.7, top_k=5),
    sampled(top_p=0.7),
    sampled(top_p=1e-9),
    sampled(min_p=0.05),
    sampled(temperature=1.3, top_k=40, top_p=0.9, min_p=0.02),
    sampled(repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2, top_k=7),
]


def _tiny(folder: Path, kind: str) -> str:
    """A random checkpoint with peaked rows; ids 7 and 8 always tie."""
    import torch

    torch.set_num_threads(1)
    model = tiny_model(kind, vocab_size=TINY_VOCABULARY, max_position_embeddings=256)
    with torch.no_grad():
        head = model.get_output_embeddings().weight
        head.mul_(25.0 if head is not model.get_input_embeddings().weight else 4.0)
        head[8] = head[7]
    model.save_pretrained(folder)
    words = {f"w{i}": i for i in range(TINY_VOCABULARY)}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return str(folder)


CASES = [
    (name, kind) for name in sorted(BACKENDS) for kind in (KINDS if name == "hf" else ("built in",))
]
"""Every backend, and of what runs here every kind of cache."""


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Case]:
    name, kind = request.param
    needed = NEEDS.get(name)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    model = (
        _tiny(tmp_path_factory.mktemp("tiny"), kind)
        if name == "hf"
        else "scripted:rate=0,vocab=600"
    )
    backend = make_backend(name)
    options = EngineOptions(backend=name, model=model, device="cpu", dtype="fp32")
    loaded = backend.load(options, locate(options, _ignore), _ignore)
    yield Case(backend, loaded)
    backend.close()


def _ignore(stage: str, done: int, total: int) -> None:
    pass


def test_what_loading_found_is_sane(case: Case) -> None:
    model = case.loaded.model
    assert model.vocabulary > 0
    assert sum(model.layer_kinds.values()) == model.layers
    assert model.parameters > 0
    assert model.weights_bytes > 0
    assert case.loaded.weights_id
    assert all(0 <= token_id < model.vocabulary for token_id in case.loaded.eos_ids)


def test_candidates_run_by_logit_then_id(case: Case) -> None:
    report = case.whole(PROMPT)
    assert sorted(report.ids) == list(range(case.vocabulary))
    keys = [(-logit, i) for logit, i in zip(report.logits, report.ids, strict=True)]
    assert keys == sorted(keys)


@pytest.mark.parametrize("k", [1, 2, 5, 20, 100])
def test_the_first_k_are_a_prefix_of_all(case: Case, k: int) -> None:
    whole = case.whole(PROMPT)
    some = case.after(PROMPT).evaluate(Sampler(), PROMPT).report(k)
    assert some.ids == whole.ids[:k]
    assert some.logits == pytest.approx(whole.logits[:k], rel=1e-6)
    assert some.ties_cut == (whole.logits[k - 1] == whole.logits[k])
    tail = sum(math.exp(logit - whole.logsumexp) for logit in whole.logits[k:])
    assert some.tail_prob == pytest.approx(tail, abs=1e-6)


def test_asking_for_more_than_there_is_gives_what_there_is(case: Case) -> None:
    report = case.after(PROMPT).evaluate(Sampler(), PROMPT).report(10 * case.vocabulary)
    assert len(report.ids) == case.vocabulary
    assert not report.ties_cut
    assert report.tail_prob == 0.0


def test_ties_are_found(case: Case) -> None:
    tied = []
    for last in range(60, 90):
        report = case.whole([*PROMPT, last])
        for k in range(1, case.vocabulary):
            if report.logits[k - 1] == report.logits[k]:
                assert report.ids[k - 1] < report.ids[k]
                tied.append((last, k))
    assert tied
    last, k = tied[0]
    assert case.after([*PROMPT, last]).evaluate(Sampler(), ()).report(k).ties_cut


def test_raw_figures_belong_to_the_row(case: Case) -> None:
    report = case.whole(PROMPT)
    probs = [math.exp(logit - report.logsumexp) for logit in report.logits]
    assert sum(probs) == pytest.approx(1.0, abs=1e-6)
    entropy = -sum(p * math.log2(p) for p in probs if p)
    assert report.entropy_bits == pytest.approx(entropy, rel=1e-4)
    assert report.margin == pytest.approx(probs[0] - probs[1], abs=1e-6)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_final_probabilities_follow_the_reference(case: Case, sampler: Sampler) -> None:
    raw, report = case.whole(PROMPT), case.whole(PROMPT, sampler)
    assert report.logits == raw.logits
    row = [0.0] * case.vocabulary
    for token_id, logit in zip(raw.ids, raw.logits, strict=True):
        row[token_id] = logit
    expected = filtered(row, sampler, PROMPT)
    assert report.dropped_by == [expected.dropped_by[i] for i in report.ids]
    for token_id, final in zip(report.ids, report.final_logprobs, strict=True):
        assert final == pytest.approx(expected.final_logprobs[token_id], abs=1e-5)
    assert sum(map(math.exp, report.final_logprobs)) == pytest.approx(1.0, abs=1e-6)
    for final, dropped in zip(report.final_logprobs, report.dropped_by, strict=True):
        assert (final == -math.inf) == (dropped != DroppedBy.KEPT)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("u", [0.0, 0.31, 0.77, 0.999, 1 - 2**-53])
def test_a_pick_has_the_values_of_its_distribution(case: Case, sampler: Sampler, u: float) -> None:
    evaluation = case.after(PROMPT).evaluate(sampler, PROMPT)
    choice = evaluation.pick(u)
    report = evaluation.report(case.vocabulary)
    place = report.ids.index(choice.id)
    assert choice.logit == report.logits[place]
    assert choice.final_logprob == pytest.approx(report.final_logprobs[place], abs=1e-6)
    assert choice.final_logprob > -math.inf
    assert choice.rank == 1 + sum(logit > choice.logit for logit in report.logits)
    greedy = sampler.greedy or sampler.temperature == 0.0
    assert (choice.how, choice.draw) == (("greedy", None) if greedy else ("sampled", u))
    assert (choice.before is None) == greedy
    if choice.before is not None:
        assert choice.before - 1e-9 <= u <= choice.before + math.exp(choice.final_logprob) + 1e-6


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_picks_at_the_edges_of_the_intervals(case: Case, sampler: Sampler) -> None:
    report = case.whole(PROMPT)
    row = [0.0] * case.vocabulary
    for token_id, logit in zip(report.ids, report.logits, strict=True):
        row[token_id] = logit
    expected = filtered(row, sampler, PROMPT)
    evaluation = case.after(PROMPT).evaluate(sampler, PROMPT)
    assert evaluation.pick(0.0).id == expected.order[0]
    for place, bound in enumerate(expected.bounds[:30]):
        if bound - 1e-9 > (expected.bounds[place - 1] if place else 0.0):
            assert evaluation.pick(bound - 1e-9).id == expected.order[place]
        if bound + 1e-9 < 1.0:
            assert evaluation.pick(bound + 1e-9).id == expected.pick(bound + 1e-9)


def test_forced_takes_any_id_with_its_own_values(case: Case) -> None:
    evaluation = case.after(PROMPT).evaluate(sampled(top_k=2), PROMPT)
    report = evaluation.report(case.vocabulary)
    for place in (0, 1, 2, 50, case.vocabulary - 1):
        choice = evaluation.forced(report.ids[place])
        assert (choice.id, choice.how, choice.draw) == (report.ids[place], "forced", None)
        assert choice.logit == report.logits[place]
        assert choice.final_logprob == pytest.approx(report.final_logprobs[place])
        assert choice.rank == 1 + sum(logit > choice.logit for logit in report.logits)


def test_forward_after_forward_equals_a_fresh_one(case: Case) -> None:
    cache = case.backend.new_cache("kv")
    path = list(PROMPT)
    forward = case.backend.forward(path, cache)
    assert forward.processed == len(path)
    for _ in range(12):
        path.append(forward.distribution.evaluate(Sampler(), path).pick(0.5).id)
        forward = case.backend.forward(path[-1:], cache)
        assert forward.processed == 1
        assert forward.ms >= 0.0
    grown = forward.distribution.evaluate(Sampler(), path).report(20)
    fresh = case.after(path).evaluate(Sampler(), path).report(20)
    assert grown.ids == fresh.ids
    assert grown.logits == pytest.approx(fresh.logits, rel=1e-4, abs=1e-4)


def test_several_ids_at_once_equal_one_by_one(case: Case) -> None:
    cache = case.backend.new_cache("kv")
    case.backend.forward(PROMPT[:2], cache)
    forward = case.backend.forward(PROMPT[2:], cache)
    assert forward.processed == len(PROMPT) - 2
    grown = forward.distribution.evaluate(Sampler(), PROMPT).report(20)
    assert grown.logits == pytest.approx(case.whole(PROMPT).logits[:20], rel=1e-4, abs=1e-4)


def test_without_a_cache_everything_is_read_again_and_comes_out_the_same(case: Case) -> None:
    naive = case.backend.new_cache("none")
    case.backend.forward(PROMPT[:4], naive)
    forward = case.backend.forward(PROMPT[4:], naive)
    assert forward.processed == len(PROMPT)
    report = naive.report(100)
    assert (report.mode, report.growing_bytes) == ("none", 0)
    again = forward.distribution.evaluate(Sampler(), PROMPT).report(20)
    assert again.logits == pytest.approx(case.whole(PROMPT).logits[:20], rel=1e-4, abs=1e-4)


def test_the_cache_report_adds_up(case: Case) -> None:
    cache = case.backend.new_cache("kv")
    bytes_a_token = set()
    for count in range(1, 8):
        case.backend.forward([65], cache)
        report = cache.report(77)
        assert (report.mode, report.tokens, report.limit_tokens) == ("kv", count, 77)
        if report.growing_bytes is None or report.allocated_bytes is None:
            continue
        assert report.capacity_tokens is None or report.capacity_tokens >= count
        assert report.allocated_bytes >= report.growing_bytes > 0
        bytes_a_token.add(report.growing_bytes / count)
    assert len(bytes_a_token) <= 1
    cache.free()
    assert not cache.report(77).allocated_bytes


def test_two_caches_do_not_know_each_other(case: Case) -> None:
    one, two = case.backend.new_cache("kv"), case.backend.new_cache("kv")
    case.backend.forward(PROMPT[:3], one)
    case.backend.forward([80, 81, 82, 83], two)
    forward = case.backend.forward(PROMPT[3:], one)
    report = forward.distribution.evaluate(Sampler(), PROMPT).report(20)
    assert report.logits == pytest.approx(case.whole(PROMPT).logits[:20], rel=1e-4, abs=1e-4)


def test_a_distribution_outlives_the_forwards_after_it(case: Case) -> None:
    cache = case.backend.new_cache("kv")
    early = case.backend.forward(PROMPT, cache).distribution
    before = early.evaluate(Sampler(), PROMPT).report(20)
    for token_id in (70, 71, 72):
        case.backend.forward([token_id], cache).distribution.evaluate(Sampler(), ()).report(5)
    early.evaluate(sampled(temperature=0.1, top_k=3), PROMPT).report(20)
    assert early.evaluate(Sampler(), PROMPT).report(20) == before


def test_work_grows_with_what_is_read_and_what_is_held(case: Case) -> None:
    one, many = case.backend.work(1, 100), case.backend.work(100, 100)
    assert 0 < one.flops < many.flops
    assert 0 < one.bytes_moved <= many.bytes_moved
    # Within the windows of those that have nothing else.
    assert case.backend.work(1, 4).bytes_moved < case.backend.work(1, 6).bytes_moved


def test_the_decode_loop_runs_on_it(case: Case) -> None:
    table = PieceTable("none", [b"%d " % i for i in range(case.vocabulary)], [False] * 1)
    engine = Engine(case.backend, case.loaded, table)
    sampler = sampled(temperature=1.2, seed=17)
    whole = _drive(DecodeSession(engine, opening(sampler=sampler)), 12)
    again = _drive(DecodeSession(engine, opening(sampler=sampler, cache_mode="none")), 12)
    assert [it.choice.id for it in whole] == [it.choice.id for it in again]
    assert {it.choice.how for it in whole} == {"sampled"}


def _drive(session: DecodeSession, steps: int) -> list[Append]:
    loop = session.steps()
    made = [next(loop) for _ in range(2 * steps)]
    return [it for it in made if isinstance(it, Append)]
