"""A decode from its prompt to its end, on each kind of model: the same twice, and stopped right."""

from pathlib import Path

import pytest

from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.values import Sampler
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.tokens.builtin import BuiltinTokenizer
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.decode import DecodeSession
from engine_daemon.worker.engine import Engine
from engine_daemon.worker.outcomes import Append, Prediction
from tests.worker.checkpoints import KINDS, VOCABULARY, edit_config, quiet, save_tiny
from tests.worker.conftest import opening

pytestmark = pytest.mark.engine
PROMPT = [(7 * i + 3) % VOCABULARY for i in range(21)]
SAMPLED = Sampler(greedy=False, temperature=1.3, top_p=0.95, repetition_penalty=1.1, seed=5)


def engine_of(folder: Path) -> Engine:
    """Loaded anew."""
    backend = HfBackend()
    options = EngineOptions(model=str(folder), device="cpu", dtype="bf16")
    loaded = backend.load(options, str(folder), quiet)
    return Engine(backend, loaded, BuiltinTokenizer().table())


def decoded(engine: Engine, sampler: Sampler, steps: int) -> list[Append]:
    """So many steps of a session, whatever ends it."""
    session = DecodeSession(engine, opening(prompt_ids=pack_ints("I", PROMPT), sampler=sampler))
    loop = session.steps()
    made = []
    for _ in range(steps):
        assert isinstance(next(loop), Prediction)
        append = next(loop)
        assert isinstance(append, Append)
        made.append(append)
    session.give_back()
    return made


@pytest.mark.parametrize("sampler", [Sampler(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", KINDS)
def test_two_decodes_with_the_same_seed_give_identical_ids(
    tmp_path: Path, kind: str, sampler: Sampler
) -> None:
    """In one engine, and in one that was loaded anew."""
    folder = save_tiny(tmp_path, kind)
    first = engine_of(folder)
    ids = [
        [it.choice.id for it in decoded(e, sampler, 60)] for e in (first, first, engine_of(folder))
    ]
    assert ids[0] == ids[1] == ids[2]
    if not sampler.greedy:
        other = decoded(first, Sampler(greedy=False, temperature=1.3, seed=6), 60)
        assert [it.choice.id for it in other] != ids[0]


@pytest.mark.parametrize("where", ["config.json", "generation_config.json"])
def test_each_of_several_end_tokens_ends_and_can_be_passed(tmp_path: Path, where: str) -> None:
    """Those of the generation settings count where there are any."""
    folder = save_tiny(tmp_path, "llama")
    ids = [it.choice.id for it in decoded(engine_of(folder), SAMPLED, 40)]
    ends = sorted({ids[9], ids[20], ids[33]})
    (folder / "generation_config.json").unlink()
    edit_config(folder, eos_token_id=ends if where == "config.json" else 2)
    if where != "config.json":
        settings = folder / where
        settings.write_text(f'{{"eos_token_id": {ends}}}')
    engine = engine_of(folder)
    assert engine.loaded.eos_ids == ends
    again = decoded(engine, SAMPLED, 40)
    assert [it.choice.id for it in again] == ids
    assert [it.stop for it in again] == ["eos" if token in ends else None for token in ids]
