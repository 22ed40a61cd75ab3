"""What a viewer gets next: pace at the head, credit, one batch made for all who get the same."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from engine_daemon.hub.fanout import BATCH_BYTES, FRAME_S, Cut, Cuts, next_batch
from engine_daemon.hub.viewers import Following
from engine_daemon.protocol.commands import Batch
from engine_daemon.recording.writer import LogWriter

SESSION = "7ZK3M9QP"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogWriter]:
    writer = LogWriter.create(tmp_path / f"{SESSION}.lir", b"zero")
    yield writer
    writer.close()


def _viewer(start: int = 1, win_bytes: int = 10**6) -> Following:
    return Following(SESSION, start, win_bytes)


def _decoded(cut: Cut | float | None) -> Batch:
    assert isinstance(cut, Cut)
    return msgspec.msgpack.decode(cut.body, type=Batch)


def test_at_the_head_a_frame_is_waited_for(log: LogWriter) -> None:
    viewer = _viewer()
    assert next_batch(viewer, log, 0, 0.0, Cuts()) is None
    log.append(b"one")
    batch = _decoded(next_batch(viewer, log, 0, 5.0, Cuts()))
    assert (batch.start, batch.to, batch.ev) == (1, 2, [(1, b"one")])
    viewer.sent(2, 3, now=5.0)
    log.append(b"two")
    assert next_batch(viewer, log, 0, 5.0 + FRAME_S / 2, Cuts()) == 5.0 + FRAME_S
    assert _decoded(next_batch(viewer, log, 1, 5.0 + FRAME_S, Cuts())).ev == [(2, b"two")]


def test_whoever_is_behind_waits_for_nothing_but_credit(log: LogWriter) -> None:
    for _ in range(5):
        log.append(bytes(BATCH_BYTES // 2))
    viewer = _viewer(win_bytes=BATCH_BYTES)
    first = next_batch(viewer, log, 0, 5.0, Cuts())
    assert isinstance(first, Cut)
    assert first.to == 2  # with its frame the second does not fit
    viewer.sent(first.to, len(first.body), now=5.0)
    second = next_batch(viewer, log, 0, 5.0, Cuts())
    assert isinstance(second, Cut)
    viewer.sent(second.to, len(second.body), now=5.0)
    assert next_batch(viewer, log, 0, 5.0, Cuts()) is None
    viewer.acknowledge(2)
    assert _decoded(next_batch(viewer, log, 0, 5.0, Cuts())).start == 3


def test_a_batch_is_made_once_for_all_who_get_it(log: LogWriter) -> None:
    log.append(b"one")
    log.append(b"two")
    cuts = Cuts()
    made = [next_batch(_viewer(start), log, 0, 5.0, cuts) for start in (1, 1, 2)]
    assert made[0] is made[1]
    assert _decoded(made[2]).ev == [(2, b"two")]
