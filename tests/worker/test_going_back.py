"""Going back and on again, per kind of cache, against plain transformers on the same ids."""

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.values import Restored, Sampler, Stops
from engine_daemon.protocol.worker import AskRow, EngineOptions, Move
from engine_daemon.worker.backends import locate
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.caches import HfCache
from engine_daemon.worker.decode import DecodeSession
from engine_daemon.worker.engine import Engine
from engine_daemon.worker.kept_rows import KeptRows, PathKey
from engine_daemon.worker.outcomes import Append, Prediction, draw
from engine_daemon.worker.prefill import Chunk
from engine_daemon.worker.probe import RowDistribution
from engine_daemon.worker.row_reads import read_row
from tests.worker.checkpoints import VOCABULARY, quiet, save_tiny, tiny_model
from tests.worker.conftest import opening

pytestmark = pytest.mark.engine
KINDS: Final = ("llama", "mistral", "gemma3", "qwen3_5")
PROMPT: Final = [(7 * i + 3) % VOCABULARY for i in range(11)]
EVERY: Final = 4


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Engine]:
    base = tmp_path_factory.mktemp("tiny")
    return {kind: _engine(save_tiny(base / kind, kind)) for kind in KINDS}


def _engine(folder: Path) -> Engine:
    backend = HfBackend()
    options = EngineOptions(model=str(folder), device="cpu", dtype="fp32", snapshot_every=EVERY)
    loaded = backend.load(options, locate(options, quiet), quiet)
    return Engine(backend, loaded, PieceTable("none", [b"x"] * VOCABULARY, [False] * VOCABULARY))


@cache
def model(kind: str) -> Any:
    return tiny_model(kind)


@cache
def fresh(kind: str, ids: tuple[int, ...]) -> torch.Tensor:
    """The row after `ids`, by transformers alone, without any cache."""
    with torch.inference_mode():
        row: torch.Tensor = model(kind)(torch.tensor([ids]), use_cache=False).logits[0, -1]
    return row.float()


class Walker:
    """One session, driven by hand; every distribution it makes is compared."""

    def __init__(
        self, engine: Engine, kind: str, mode: str = "kv", stops: Stops | None = None
    ) -> None:
        self.engine = Engine(engine.backend, engine.loaded, engine.table, KeptRows())
        self.kind = kind
        order = opening(prompt_ids=pack_ints("I", PROMPT), cache_mode=mode, stops=stops)
        self.session = DecodeSession(self.engine, order)
        self.loop = self.session.steps()
        self.paths: dict[int, list[int]] = {0: []}
        self.branch = 0
        self.forwards = 0
        self.look()

    @property
    def ids(self) -> list[int]:
        return self.paths[self.branch]

    @property
    def cache(self) -> HfCache:
        held = self.session._cache
        assert isinstance(held, HfCache)
        return held

    def between(self, chunk: Chunk) -> None:
        """Called after each chunk of what is read in several."""

    def look(self) -> Prediction:
        """The distribution at the end of the path, compared with a fresh one."""
        while isinstance(made := next(self.loop), Chunk):
            self.between(made)
        assert isinstance(made, Prediction)
        row = made.forward.distribution
        assert isinstance(row, RowDistribution)
        expected = fresh(self.kind, (*PROMPT, *self.ids))
        error = float((row.row - expected).abs().max() / expected.abs().max())
        assert error <= 1e-4, (self.ids, made.restored)
        assert made.position == len(PROMPT) + len(self.ids)
        assert made.look.report.ids[0] == int(expected.argmax())
        return made

    def step(self, forced: int | None = None) -> Prediction:
        append = self.loop.send(forced)
        assert isinstance(append, Append)
        expected = fresh(self.kind, (*PROMPT, *self.ids))
        assert append.choice.id == (int(expected.argmax()) if forced is None else forced)
        self.ids.append(append.choice.id)
        return self.look()

    def move(self, *, look: bool = True) -> Prediction | None:
        order = Move(
            session="s1",
            branch=self.branch,
            ids=pack_ints("I", self.ids),
            sampler=Sampler(),
            salt=0,
            look=look,
        )
        self.session.move(order)
        self.loop = self.session.steps()
        return self.look() if look else None

    def fork(self, step: int) -> Prediction:
        """Stand at a recorded step on a branch of its own."""
        new = len(self.paths)
        self.paths[new] = self.ids[:step]
        self.branch = new
        made = self.move()
        assert made is not None
        return made

    def switch(self, branch: int) -> Prediction:
        self.branch = branch
        made = self.move()
        assert made is not None
        return made


def restored(made: Prediction) -> Restored:
    assert made.restored is not None
    return made.restored


@pytest.mark.parametrize("kind", KINDS)
def test_forcing_a_recorded_step_reads_its_row_and_goes_back_once(
    engines: dict[str, Engine], kind: str
) -> None:
    walk = Walker(engines[kind], kind)
    for _ in range(14):
        walk.step()
    made = walk.fork(9)
    assert (made.forward.processed, restored(made).method) == (0, "row")
    held = walk.cache.tokens
    assert held == len(PROMPT) + 14, "looking at a row takes nothing back"
    assert made.cache.tokens == made.position, "what is held beyond it is of another path"
    after = restored(walk.step(forced=5))
    # The prompt's end is snapshotted, then every EVERY steps.
    expected = ("crop", 0) if kind == "llama" else ("snapshot", 1)
    assert (after.method, after.replayed) == expected
    assert walk.step().restored is None


@pytest.mark.parametrize("kind", KINDS)
def test_switching_back_reads_nothing_again_while_the_tail_is_held(
    engines: dict[str, Engine], kind: str
) -> None:
    walk = Walker(engines[kind], kind)
    for _ in range(13):
        walk.step()
    walk.fork(6)
    for forced in (5, 6, 7):
        walk.step(forced)
    assert walk.cache.parked_bytes() > 0
    walk.switch(0)
    made = walk.step()
    assert (made.forward.processed, restored(made).replayed) == (1, 0)
    walk.switch(1)
    made = walk.step()
    assert (made.forward.processed, restored(made).replayed) == (1, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_without_rows_and_tails_the_ids_are_read_again(
    engines: dict[str, Engine], kind: str
) -> None:
    walk = Walker(engines[kind], kind)
    for _ in range(9):
        walk.step()
    walk.engine.rows.drop("s1")
    made = walk.fork(7)
    again = restored(made)
    if kind == "llama":
        assert (again.method, again.replayed) == ("crop", 1)
    else:
        assert again.method == "snapshot"
        assert 1 <= again.replayed <= EVERY
    walk.cache.snapshots.clear()
    while walk.cache.tails:
        walk.cache.release_tail()
    walk.engine.rows.drop("s1")
    walk.step()
    made = walk.fork(2)
    assert restored(made).method == ("crop" if kind == "llama" else "prefill")
    walk.session.give_back()
    walk.engine.rows.drop("s1")
    assert restored(walk.switch(0)).method == "prefill"


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_made_again_is_the_row_and_the_session_stands_where_it_stood(
    engines: dict[str, Engine], kind: str
) -> None:
    walk = Walker(engines[kind], kind)
    for _ in range(9):
        walk.step()
    walk.engine.rows.drop("s1")
    walk.session.make_row(walk.ids[:4])
    assert len(walk.engine.rows) == 1
    made = walk.step()
    assert made.forward.processed == 1
    assert restored(made).replayed == 0


def test_rows_are_bounded() -> None:
    rows = KeptRows(1000)
    row = RowDistribution(torch.zeros(100, dtype=torch.bfloat16))
    for number in range(20):
        rows.keep(("s1", bytes([number])), row)
    assert (len(rows), rows.bytes) == (5, 1000)
    assert rows.get(("s1", bytes([14]))) is None
    kept = rows.get(("s1", bytes([19])))
    assert isinstance(kept, RowDistribution)
    assert kept.logits.dtype is torch.bfloat16
    rows.drop("s1")
    assert (len(rows), rows.bytes) == (0, 0)


ACTS: Final = st.one_of(
    st.tuples(st.just("step"), st.integers(1, 6)),
    st.tuples(st.just("force"), st.integers(3, VOCABULARY - 1)),
    st.tuples(st.just("fork"), st.integers(0, 40)),
    st.tuples(st.just("switch"), st.integers(0, 5)),
    st.tuples(st.just("lose"), st.sampled_from(["rows", "snapshots", "tails", "cache"])),
    st.tuples(st.just("row"), st.integers(0, 40)),
)


@pytest.mark.parametrize("mode", ["kv", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_any_walk_equals_plain_transformers(
    engines: dict[str, Engine], kind: str, mode: str
) -> None:
    @settings(
        max_examples=25 if mode == "kv" else 5,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    @given(st.lists(ACTS, min_size=3, max_size=14))
    def walked(acts: list[tuple[str, Any]]) -> None:
        walk = Walker(engines[kind], kind, mode)
        for name, value in acts:
            act(walk, name, value)

    walked()


def act(walk: Walker, name: str, value: Any) -> None:
    match name:
        case "step":
            for _ in range(value):
                walk.step()
        case "force":
            walk.step(forced=value)
        case "fork":
            walk.fork(value % (len(walk.ids) + 1))
        case "switch":
            walk.switch(value % len(walk.paths))
        case "row":
            walk.session.make_row(walk.ids[: value % (len(walk.ids) + 1)])
        case "lose" if value == "rows":
            walk.engine.rows.drop("s1")
        case "lose" if walk.session._cache is None:
            pass
        case "lose" if value == "snapshots":
            walk.cache.snapshots.clear()
        case "lose" if value == "tails":
            walk.cache.tails.clear()
        case _:
            walk.session.give_back()


@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_row_answers_as_the_step_was_told(engines: dict[str, Engine], kind: str) -> None:
    walk = Walker(engines[kind], kind)
    sampler = Sampler(greedy=False, temperature=1.7, top_p=0.9, repetition_penalty=1.3, seed=4)
    ask = AskRow(ask=1, session="s1", ids=b"", sampler=sampler, salt=0)
    before = fresh(kind, tuple(PROMPT))
    for _ in range(5):
        walk.step()
    found = read_row(walk.engine, walk.session, replace(ask, tokens=list(range(VOCABULARY))))
    assert found.tokens is not None
    logits = torch.tensor([token.logit for token in found.tokens])
    assert float((logits - before).abs().max() / before.abs().max()) <= 1e-4
    total = sum(math.exp(token.logprob) for token in found.tokens)
    assert total == pytest.approx(1.0, abs=1e-5)
    final = torch.tensor([token.final_logprob for token in found.tokens]).exp()
    assert float(final.sum()) == pytest.approx(1.0, abs=1e-5)
    n = 20_000
    rolled = read_row(walk.engine, walk.session, replace(ask, n=n)).tokens
    assert rolled is not None
    assert sum(token.count or 0 for token in rolled) == n
    for token in rolled:
        expected = n * float(final[token.id])
        assert abs((token.count or 0) - expected) <= 6 * expected**0.5 + 1
    told = read_row(walk.engine, walk.session, ask).figures
    assert told is not None
    assert (
        told.picked.id
        == walk.engine.rows.get(  # type: ignore[union-attr]
            PathKey("s1", PROMPT).key
        )
        .evaluate(sampler, PROMPT)
        .pick(draw(4, 0, 0))
        .id
    )
    nothing = read_row(walk.engine, walk.session, replace(ask, ids=pack_ints("I", [1])))
    assert nothing.code == "gone"


@given(
    st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=300),
    st.lists(st.floats(0, 1, exclude_max=True), max_size=30),
    st.sampled_from([Sampler(), Sampler(greedy=False), Sampler(greedy=False, top_p=0.7)]),
)
@settings(deadline=None, max_examples=60)
def test_many_draws_are_single_draws(row: list[float], us: list[float], sampler: Sampler) -> None:
    evaluation = RowDistribution(torch.tensor(row)).evaluate(sampler, ())
    assert evaluation.picks(us) == [evaluation.pick(u).id for u in us]
