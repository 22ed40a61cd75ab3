"""The scripted engine: what it makes up, and how it misbehaves when told to."""

import math
import subprocess
import sys

import pytest

from engine_daemon.errors import InspectError
from engine_daemon.protocol.synthetic import EOS_ID, FIRST_WORD_ID, VOCABULARY
from engine_daemon.protocol.values import DroppedBy, Sampler
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.tokens.builtin import BuiltinTokenizer
from engine_daemon.worker.backends.base import Backend, Loaded, NoMemoryError, Report
from engine_daemon.worker.backends.scripted import ScriptedBackend


def loaded(keys: str = "") -> tuple[ScriptedBackend, Loaded]:
    backend = ScriptedBackend()
    options = EngineOptions(backend="scripted", model=f"scripted:rate=0,{keys}")
    progress: list[tuple[str, int, int]] = []

    def note(stage: str, done: int, total: int) -> None:
        progress.append((stage, done, total))

    made = backend.load(options, "", note)
    assert progress[-1][1] == progress[-1][2] > 0
    return backend, made


def report_after(backend: ScriptedBackend, ids: list[int], k: int = 50) -> Report:
    forward = backend.forward(ids, backend.new_cache("kv"))
    return forward.distribution.evaluate(Sampler(), ids).report(k)


def test_is_a_backend_and_says_it_is_synthetic() -> None:
    backend: Backend = ScriptedBackend()
    assert backend.synthetic


def test_needs_no_torch() -> None:
    code = (
        "import sys; from engine_daemon.worker.backends import make_backend;"
        "make_backend('scripted'); import engine_daemon.worker.loop;"
        "sys.exit(bool({'torch', 'transformers', 'numpy', 'tokenizers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0


def test_the_vocabulary_is_the_tokenizers() -> None:
    _, made = loaded()
    assert made.model.vocabulary == VOCABULARY == len(BuiltinTokenizer().table())
    assert made.eos_ids == [EOS_ID]


def test_the_same_seed_and_ids_give_the_same_numbers_in_any_process() -> None:
    code = (
        "from tests.worker.test_scripted import loaded, report_after;"
        "r = report_after(loaded('seed=3')[0], [300, 44, 301]); print(r.ids, r.logits)"
    )
    here = report_after(loaded("seed=3")[0], [300, 44, 301])
    there = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert there.stdout.strip() == f"{here.ids} {here.logits}"
    assert here != report_after(loaded("seed=4")[0], [300, 44, 301])


def test_weights_id_goes_by_what_changes_the_numbers() -> None:
    plain = loaded()[1].weights_id
    assert plain == loaded("kv_bytes=7,crash_at=9")[1].weights_id
    assert plain != loaded("seed=1")[1].weights_id
    assert plain != loaded("eos_at=9")[1].weights_id


def test_the_text_is_mostly_words() -> None:
    backend, _ = loaded()
    ids, cache = [300], backend.new_cache("kv")
    forward = backend.forward(ids, cache)
    sampler = Sampler(greedy=False)
    for place in range(200):
        choice = forward.distribution.evaluate(sampler, ids).pick((place * 0.618) % 1.0)
        ids.append(choice.id)
        forward = backend.forward([choice.id], cache)
    assert sum(token_id >= FIRST_WORD_ID for token_id in ids) > 150
    assert len(set(ids)) > 40


def test_rows_are_peaked_but_not_certain() -> None:
    backend, _ = loaded()
    tops = []
    for token_id in range(FIRST_WORD_ID, FIRST_WORD_ID + 40):
        report = report_after(backend, [token_id])
        tops.append(math.exp(report.logits[0] - report.logsumexp))
    assert 0.2 < sum(tops) / len(tops) < 0.8


def test_the_end_comes_where_the_script_says_and_may_be_passed() -> None:
    backend, _ = loaded("eos_at=3")
    cache = backend.new_cache("kv")
    for read, is_end in (([300, 301], False), ([302], True), ([EOS_ID], False)):
        forward = backend.forward(read, cache)
        assert (forward.distribution.evaluate(Sampler(), ()).pick(0.5).id == EOS_ID) is is_end


def test_padding_is_masked() -> None:
    backend, made = loaded("vocab=600")
    assert made.model.vocabulary == 600
    report = report_after(backend, [300], k=600)
    assert report.logits[-1] == -math.inf
    assert sorted(report.ids[-(600 - VOCABULARY) :]) == list(range(VOCABULARY, 600))
    forward = backend.forward([300], backend.new_cache("kv"))
    sampled = forward.distribution.evaluate(Sampler(greedy=False), ()).report(600)
    assert sampled.dropped_by[-1] == DroppedBy.MASK
    assert report.tail_prob == 0.0


def test_the_cache_grows_in_doubling_buffers() -> None:
    backend, _ = loaded("kv_bytes=100")
    cache = backend.new_cache("kv")
    backend.forward([300] * 200, cache)
    report = cache.report(5000)
    assert (report.tokens, report.growing_bytes, report.fixed_bytes) == (200, 20_000, 0)
    assert (report.capacity_tokens, report.allocated_bytes) == (256, 25_600)
    assert report.limit_tokens == 5000
    backend.forward([300] * 100, cache)
    assert cache.report(None).capacity_tokens == 512


def test_runs_out_of_memory_where_it_is_told_to() -> None:
    backend, _ = loaded("no_memory_at=3,kv_bytes=10")
    cache = backend.new_cache("kv")
    backend.forward([300, 301], cache)
    with pytest.raises(NoMemoryError) as caught:
        backend.forward([302], cache)
    assert caught.value.code == "no_memory"
    assert caught.value.need_bytes is not None
    assert caught.value.have_bytes is not None
    assert caught.value.need_bytes > caught.value.have_bytes


def test_a_fault_does_not_come_back_when_the_sequence_is_read_again() -> None:
    backend, _ = loaded("error_at=3")
    cache = backend.new_cache("kv")
    backend.forward([300, 301], cache)
    with pytest.raises(RuntimeError):
        backend.forward([302], cache)
    backend.forward([300, 301, 302], backend.new_cache("kv"))


def test_loading_can_fail() -> None:
    with pytest.raises(InspectError, match="loading fails"):
        loaded("load_fail=1")


def test_keeps_its_rate_on_average() -> None:
    backend = ScriptedBackend()
    options = EngineOptions(backend="scripted", model="scripted:rate=2000")
    backend.load(options, "", _ignore)
    cache = backend.new_cache("kv")
    backend.forward([300], cache)
    due = backend._due_ns
    for _ in range(200):
        backend.forward([300], cache)
    # A step is two events, so 1 ms at this rate; what is late is not caught up with.
    assert backend._due_ns - due >= 200 * 1_000_000


def _ignore(stage: str, done: int, total: int) -> None:
    pass


def test_prompt_ids_beyond_the_vocabulary_do_no_harm() -> None:
    backend, _ = loaded()
    assert report_after(backend, [10**6]).ids
    penalty = Sampler(repetition_penalty=2.0)
    forward = backend.forward([10**6], backend.new_cache("kv"))
    assert forward.distribution.evaluate(penalty, [10**6]).report(1).ids
