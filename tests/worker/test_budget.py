"""Who gives way when memory is short, in which order, and what is told."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.events import CacheReleased, Event, Predicted, Stopped
from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.values import Sampler
from engine_daemon.protocol.worker import EngineOptions, EventOut, Go, Move, Seen
from engine_daemon.worker.backends.base import NoMemoryError
from engine_daemon.worker.backends.hf import HfBackend
from engine_daemon.worker.budget import Member, Why, limit_of, make_room
from engine_daemon.worker.decode import Engine
from engine_daemon.worker.kept_rows import KeptRows
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

    @property
    def frugal(self) -> "Plain | None":
        return self

    def unread(self) -> int:
        return 1

    def need(self, more: int) -> int:
        return self.wants

    def held_bytes(self) -> int:
        return self.buffers + sum(self.tails) + sum(self.snapshots)

    def release_tail(self) -> int:
        return self.tails.pop(0) if self.tails else 0

    def release_snapshot(self) -> int:
        return self.snapshots.pop(0) if self.snapshots else 0

    def give_back(self) -> None:
        self.buffers, self.tails, self.snapshots = 0, [], []


def freed(limit: int | None, wanting: Plain, others: Sequence[Plain]) -> list[tuple[str, int, Why]]:
    told: list[tuple[str, int, Why]] = []

    def note(member: Member, size: int, why: Why) -> None:
        assert isinstance(member, Plain)
        told.append((member.name, size, why))

    make_room(limit, wanting, [wanting, *others], others, note)
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


def test_the_limit() -> None:
    class Device:
        def free_bytes(self) -> int | None:
            return 1000

    assert limit_of(5, Device()) == 5
    assert limit_of(None, Device()) == 850
    assert limit_of(None, object()) is None


class Table:
    """Turns over a tiny model with a budget of caches."""

    def __init__(self, folder: Path, kind: str, limit: int) -> None:
        backend = HfBackend()
        options = EngineOptions(
            model=str(save_tiny(folder, kind)), device="cpu", dtype="fp32", snapshot_every=8
        )
        loaded = backend.load(options, backend.locate(options, quiet), quiet)
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
