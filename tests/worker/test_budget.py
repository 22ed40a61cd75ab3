"""Who gives way when memory is short, in which order, and what is told."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.events import (
    CacheReleased,
    Event,
    NaiveMeasured,
    Predicted,
    Recomputed,
    Stepped,
    Stopped,
)
from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.values import Sampler, Stops
from engine_daemon.protocol.worker import (
    EngineOptions,
    EventOut,
    Go,
    MakeRow,
    Measure,
    Move,
    Seen,
)
from engine_daemon.worker.backends import locate
from engine_daemon.worker.backends.base import NoMemoryError
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.budget import Member, Why, limit_of, make_room
from engine_daemon.worker.caches import HfCache
from engine_daemon.worker.claims import Claim
from engine_daemon.worker.engine import Engine
from engine_daemon.worker.host_memory import Present
from engine_daemon.worker.kept_rows import DEFAULT_BYTES, KeptRows, rows_limit
from engine_daemon.worker.turns import Turns
from tests.worker.checkpoints import VOCABULARY, quiet, save_tiny
from tests.worker.conftest import opening


@dataclass
class Plain:
    """A session and its cache in one: tails, snapshots and buffers as numbers."""

    name: str
    used_ns: int = 0
    buffers: int = 0
    tails: list[int] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    wants: int = 0
    grown: bool = False
    may_park: bool | None = None

    @property
    def frugal(self) -> "Plain | None":
        return self

    @property
    def id(self) -> str:
        return self.name

    def need(self, positions: int) -> int:
        return self.wants

    def has_put_aside(self) -> bool:
        grown, self.grown = self.grown, False
        return grown

    def fitting(self, room: int) -> int | None:
        return room // 2

    def held_bytes(self) -> int:
        return self.buffers + sum(self.tails) + sum(self.snapshots)

    def release_tail(self) -> int:
        return self.tails.pop(0) if self.tails else 0

    def release_snapshot(self) -> int:
        return self.snapshots.pop(0) if self.snapshots else 0

    def give_back(self) -> None:
        self.buffers, self.tails, self.snapshots = 0, [], []


STEP = Claim(1)


def freed(
    limit: int | None, wanting: Plain, others: Sequence[Plain], claim: Claim = STEP
) -> list[tuple[str, int, Why]]:
    told: list[tuple[str, int, Why]] = []

    def note(member: Member, size: int, why: Why) -> None:
        assert isinstance(member, Plain)
        told.append((member.name, size, why))

    wanting.may_park = make_room(limit, wanting, claim, lambda: ([wanting, *others], others), note)
    return told


def test_nobody_gives_way_while_there_is_room() -> None:
    one = Plain("one", buffers=50, tails=[10], wants=40)
    assert freed(100, one, []) == []
    assert freed(None, Plain("two", buffers=10**9, wants=10**9), [one]) == []


def test_parked_tails_then_snapshots_then_caches_of_the_least_recently_used() -> None:
    def sessions(wants: int) -> tuple[Plain, list[Plain]]:
        running = Plain("run", 9, buffers=100, tails=[5, 5], snapshots=[7], wants=wants)
        old = Plain("old", 1, buffers=30, tails=[3], snapshots=[4, 4])
        new = Plain("new", 2, buffers=40)
        return running, [new, old]

    total = 100 + 10 + 7 + 30 + 3 + 8 + 40
    expected: list[tuple[str, int, Why]] = [
        ("old", 3, "parked"),
        ("run", 10, "parked"),
        ("old", 8, "snapshots"),
        ("run", 7, "snapshots"),
        ("old", 30, "cache"),
        ("new", 40, "cache"),
    ]
    assert freed(total, *sessions(3)) == expected[:1]
    assert freed(total, *sessions(8)) == [expected[0], ("run", 5, "parked")]
    assert freed(total, *sessions(13)) == expected[:2]
    assert freed(total, *sessions(17)) == [*expected[:2], ("old", 4, "snapshots")]
    assert freed(total, *sessions(58)) == expected[:5]
    assert freed(total, *sessions(98)) == expected
    with pytest.raises(NoMemoryError) as caught:
        freed(total, *sessions(99))
    assert (caught.value.need_bytes, caught.value.have_bytes) == (99, 98)


def test_who_has_it_and_what_would_fit_is_told() -> None:
    one = Plain("one", buffers=3 * 10**9, wants=2 * 10**9)
    running = Plain("two", buffers=10**9)
    with pytest.raises(NoMemoryError) as caught:
        make_room(5 * 10**9, one, STEP, lambda: ([one, running], []), lambda *_: None)
    assert caught.value.message == (
        "2.0 GB more are needed and the budget of 5.0 GB has 1.0 GB left, held: 3.0 GB by one, "
        "1.0 GB by two; 500000000 positions fit (--max-context 500000000), or close other sessions"
    )


def test_what_is_put_aside_takes_the_place_of_older_things_but_of_no_cache() -> None:
    def sessions() -> tuple[Plain, list[Plain]]:
        one = Plain("one", 2, buffers=50, tails=[10])
        return one, [Plain("two", 1, buffers=30, snapshots=[5])]

    one, others = sessions()
    assert freed(100, one, others, Claim(aside=5)) == []
    assert one.may_park
    assert freed(100, one, others, Claim(aside=20)) == [
        ("one", 10, "parked"),
        ("two", 5, "snapshots"),
    ]
    assert one.may_park
    one, others = sessions()
    assert freed(100, one, others, Claim(aside=30)) == [
        ("one", 10, "parked"),
        ("two", 5, "snapshots"),
    ]
    assert one.may_park is False
    assert others[0].buffers == 30


def test_what_was_put_aside_without_asking_has_to_fit_at_the_next_forward() -> None:
    one = Plain("one", buffers=80, tails=[10], snapshots=[5, 15], grown=True)
    assert freed(100, one, []) == [("one", 10, "parked")]
    assert freed(95, one, []) == []
    one.grown = True
    assert freed(95, one, []) == [("one", 5, "snapshots")]
    one.grown = True
    assert freed(60, one, []) == [("one", 15, "snapshots")]


def test_what_a_forward_computes_with_counts_as_well() -> None:
    one, other = Plain("one", 2, buffers=50, wants=10), Plain("two", 1, buffers=30)
    assert freed(100, one, [other], Claim(1, scratch=10)) == []
    assert freed(100, one, [other], Claim(1, scratch=11)) == [("two", 30, "cache")]
    with pytest.raises(NoMemoryError) as caught:
        freed(100, one, [other], Claim(scratch=51))
    assert (caught.value.need_bytes, caught.value.have_bytes) == (51, 50)


def test_the_limit() -> None:
    class Device:
        def free_bytes(self) -> int | None:
            return 1000

    assert limit_of(5, Device()) == 5
    assert limit_of(None, Device()) == 850
    assert limit_of(None, object()) is None


def test_kept_rows_leave_most_of_a_small_machine_alone() -> None:
    assert rows_limit(7, Present(10)) == 7
    assert rows_limit(None, None) == rows_limit(None, Present(10**12)) == DEFAULT_BYTES
    assert rows_limit(None, Present(10**9)) == 10**8


class Table:
    """Turns over a tiny model with a budget of caches."""

    def __init__(self, folder: Path, kind: str, limit: int) -> None:
        backend = HfBackend()
        options = EngineOptions(
            model=str(save_tiny(folder, kind)), device="cpu", dtype="fp32", snapshot_every=8
        )
        loaded = backend.load(options, locate(options, quiet), quiet)
        pieces = PieceTable("none", [b"x"] * VOCABULARY, [False] * VOCABULARY)
        self.backend = backend
        engine = Engine(backend, loaded, pieces, KeptRows(), limit)
        self.log: list[tuple[str, Event]] = []
        self.turns = Turns(engine, self._told, list)

    def _told(self, message: EventOut) -> None:
        event = unpack_event(message.event)
        assert isinstance(event, Event)
        self.log.append((message.session, event))

    def run(self) -> None:
        """Turns until nobody wants one."""
        while True:
            for name in {name for name, _ in self.log}:
                count = sum(n == name for n, _ in self.log)
                self.turns.handle(Seen(session=name, next=count))
            if not self.turns.ready():
                return
            self.turns.turn()

    def released(self) -> list[tuple[str, Why]]:
        return [(name, e.why) for name, e in self.log if isinstance(e, CacheReleased)]

    def open(self, name: str, count: int = 10) -> None:
        ids = pack_ints("I", [3 + i % 100 for i in range(count)])
        self.turns.handle(opening(name, prompt_ids=ids))
        self.run()


@pytest.mark.engine
def test_a_paused_session_gives_way_and_comes_back_from_its_ids(tmp_path: Path) -> None:
    # Three layers, two heads of 16, keys and values in fp32: 768 bytes a position, 256 at first.
    first = 768 * 256
    table = Table(tmp_path, "llama", 2 * first)
    table.open("a")
    table.open("b")
    assert table.released() == []
    table.turns.handle(Go(session="b", step=3))
    table.run()
    table.open("c")
    assert table.released() == [("a", "cache")]
    table.turns.handle(Go(session="a", step=1))
    table.run()
    assert table.released() == [("a", "cache"), ("b", "cache")]
    events = [e for name, e in table.log if name == "a" and isinstance(e, Predicted)]
    assert events[-1].restored is not None
    assert (events[-1].restored.method, events[-1].processed) == ("prefill", 11)


@pytest.mark.engine
def test_what_never_fits_stops_only_that_session(tmp_path: Path) -> None:
    first = 768 * 256
    table = Table(tmp_path, "llama", first)
    table.open("a")
    table.open("big", 300)
    stop = table.log[-1]
    assert stop[0] == "big"
    assert isinstance(stop[1], Stopped)
    assert (stop[1].reason, stop[1].need_bytes) == ("no_memory", 2 * first)
    assert (stop[1].have_bytes or 0) <= first
    table.turns.handle(Go(session="a", step=2))
    table.run()
    assert isinstance(table.log[-1][1], Stopped)
    assert table.log[-1][1].reason == "goal"


@pytest.mark.engine
@pytest.mark.parametrize("kind", ["llama", "qwen3_5"])
def test_tails_and_snapshots_go_before_caches(tmp_path: Path, kind: str) -> None:
    table = Table(tmp_path, kind, 10**9)
    table.open("a")
    table.turns.handle(Go(session="a", step=40))
    table.run()
    ids = pack_ints("I", [5, 6, 7])
    table.turns.handle(Move(session="a", branch=1, ids=ids, sampler=Sampler(), salt=0, look=True))
    table.turns.handle(Go(session="a", step=4))
    table.run()
    seat = table.turns._seats["a"]
    cache = seat.session.frugal
    assert cache is not None
    held = cache.held_bytes()
    need = table.backend.new_cache("kv").need(10)
    engine = seat.session._engine
    tight = Engine(engine.backend, engine.loaded, engine.table, engine.rows, held + need - 1)
    table.turns._engine = tight
    table.open("b")
    assert table.released()[0] == ("a", "parked")
    assert ("a", "cache") not in table.released()


@pytest.mark.engine
def test_a_row_made_again_asks_for_room(tmp_path: Path) -> None:
    """Its session's cache was given back: as the row is made anew another gives way."""
    first = 768 * 256
    table = Table(tmp_path, "llama", 2 * first)
    table.open("a")
    table.turns.handle(Go(session="a", step=3))
    table.run()
    table.open("b")
    table.turns.handle(Go(session="b", step=2))
    table.run()
    table.open("c")
    assert table.released() == [("a", "cache")]
    table.turns._engine.rows.drop("a")
    table.turns.handle(MakeRow(session="a", branch=0, ids=b""))
    assert table.released() == [("a", "cache"), ("b", "cache")]
    assert isinstance(table.log[-1][1], Recomputed)
    table.turns._engine = replace(table.turns._engine, cache_bytes=first - 1)
    table.turns.handle(MakeRow(session="b", branch=0, ids=b""))
    stopped = table.log[-1][1]
    assert isinstance(stopped, Stopped)
    assert (stopped.reason, stopped.need_bytes) == ("no_memory", first)


@pytest.mark.engine
@pytest.mark.parametrize("what", ["measure", "score", "naive"])
def test_forwards_larger_than_a_chunk_ask_for_what_they_compute_with(
    tmp_path: Path, what: str
) -> None:
    table = Table(tmp_path, "llama", 10**9)
    backend, tight = table.backend, replace(table.turns._engine, cache_bytes=10**6)
    ids = pack_ints("I", [3 + i % 100 for i in range(1500)])
    if what == "measure":
        table.open("a", 1500)
        table.turns._engine = tight
        table.turns.handle(Measure(session="a", lengths=[10, 1500]))
        need = backend.scratch_bytes(1500, 1)
    else:
        table.turns._engine = tight
        mode, stops = ("kv", Stops(score=True)) if what == "score" else ("none", None)
        table.turns.handle(opening("a", prompt_ids=ids, cache_mode=mode, stops=stops))
        need = backend.scratch_bytes(1500, 1)
        if what == "score":  # a chunk, every row of it, and its place in the cache
            need = 768 * 512 + backend.scratch_bytes(512, 512)
    table.run()
    stopped = table.log[-1][1]
    assert isinstance(stopped, Stopped)
    assert (stopped.reason, stopped.need_bytes) == ("no_memory", need)
    assert [type(e) for _, e in table.log].count(NaiveMeasured) == (what == "measure")
    table.turns._engine = replace(tight, cache_bytes=10**9)
    table.turns.handle(Go(session="a", step=1))
    table.run()
    assert isinstance(table.log[-1][1], Stopped)
    assert table.log[-1][1].reason == "goal"


@pytest.mark.engine
@pytest.mark.parametrize("kind", ["llama", "qwen3_5"])
def test_what_there_is_no_room_for_is_not_put_aside(tmp_path: Path, kind: str) -> None:
    """The path that was left has to be read again then, and comes out the same."""
    table = Table(tmp_path, kind, 10**9)
    table.open("a")
    table.turns.handle(Go(session="a", step=20))
    table.run()
    cache = table.turns._seats["a"].session.frugal
    assert isinstance(cache, HfCache)
    first = [e for _, e in table.log if isinstance(e, Stepped)]
    held = cache.held_bytes() - cache.snapshots.bytes
    table.turns._engine = replace(table.turns._engine, cache_bytes=held + 500)
    move = Move(session="a", branch=1, ids=b"", sampler=Sampler(), salt=0, look=True)
    table.turns.handle(
        move,
    )
    table.turns._engine.rows.drop("a")
    table.run()
    assert cache.tails == []
    table.turns.handle(Go(session="a", step=20))
    table.run()
    again = [e for _, e in table.log if isinstance(e, Stepped)][len(first) :]
    assert [e.id for e in again] == [e.id for e in first]
