"""Going back where what is read again takes several chunks, which may be interrupted."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_daemon.protocol.values import Stops
from engine_daemon.worker.engine import Engine
from engine_daemon.worker.prefill import Chunk
from tests.worker.test_going_back import (
    ACTS,
    KINDS,
    PROMPT,
    Walker,
    _one_thread,
    act,
    engines,
    fresh,
    restored,
)

__all__ = ["_one_thread", "engines"]

pytestmark = pytest.mark.engine
SMALL = 4


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine_daemon.worker.decode.CHUNK", SMALL)


class Interrupted(Walker):
    """Between two chunks somebody takes the cache, or wants a row that is not held."""

    between_acts: Iterator[str] = iter(())

    def between(self, chunk: Chunk) -> None:
        match next(self.between_acts, ""):
            case "lose":
                self.session.give_back()
            case "row":
                self.session.make_row(self.ids[: len(self.ids) // 2])
            case _:
                pass


@pytest.mark.parametrize("kind", KINDS)
def test_any_walk_in_small_chunks_equals_plain_transformers(
    engines: dict[str, Engine], kind: str
) -> None:
    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    @given(
        st.lists(ACTS, min_size=3, max_size=10),
        st.lists(st.sampled_from(["", "", "lose", "row"]), max_size=8),
        st.booleans(),
    )
    def walked(acts: list[tuple[str, Any]], between: list[str], score: bool) -> None:
        Interrupted.between_acts = iter(between)
        walk = Interrupted(engines[kind], kind, stops=Stops(score=score))
        scores = walk.session.scores
        assert (scores is not None) == score
        if scores is not None:
            assert_scores(kind, scores.logprobs)
        for name, value in acts:
            act(walk, name, value)

    walked()


def assert_scores(kind: str, logprobs: list[float | None]) -> None:
    assert len(logprobs) == len(PROMPT)
    for place in range(1, len(PROMPT)):
        row = fresh(kind, tuple(PROMPT[:place])).log_softmax(-1)
        assert logprobs[place] == pytest.approx(float(row[PROMPT[place]]), abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_again_in_chunks_is_told_as_a_whole(
    engines: dict[str, Engine], kind: str
) -> None:
    walk = Walker(engines[kind], kind)
    for _ in range(9):
        walk.step()
    walk.session.give_back()
    walk.engine.rows.drop("s1")
    made = walk.fork(8)
    assert (restored(made).method, restored(made).replayed) == ("prefill", len(PROMPT) + 8)
    assert made.forward.processed == len(PROMPT) + 8
    assert made.phase == "prefill"


@pytest.mark.parametrize("kind", ["gemma3", "qwen3_5"])
@pytest.mark.parametrize("chunk", [4, 5, 10])
def test_the_snapshot_at_the_prompts_end_is_taken_whatever_is_left_for_the_last_chunk(
    engines: dict[str, Engine], kind: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine_daemon.worker.decode.CHUNK", chunk)
    walk = Walker(engines[kind], kind)
    walk.step()
    walk.step()
    positions = [snapshot.position for snapshot in walk.cache.snapshots._ring]
    assert positions == [len(PROMPT)]
    walk.fork(0)
    made = walk.step(forced=5)
    assert (restored(made).method, restored(made).replayed) == ("snapshot", 0)


def test_a_chunk_is_what_the_next_forward_needs_room_for(engines: dict[str, Engine]) -> None:
    walk = Walker(engines["llama"], "llama")
    walk.session.give_back()
    assert walk.session.claim().positions == SMALL
