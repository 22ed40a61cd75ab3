"""Several ranks against one: the same orders, the same events. Real processes, gloo on the CPU."""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from engine_daemon.errors import InspectError
from engine_daemon.hub.children import Ending
from engine_daemon.hub.ranks import Loss, Ranks
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.commands import CHUNK, Message
from engine_daemon.protocol.events import Event
from engine_daemon.protocol.packing import pack_ints, unpack_floats, unpack_ints
from engine_daemon.protocol.values import Sampler, Stops
from engine_daemon.protocol.worker import (
    ChildReady,
    Drop,
    DumpStacks,
    EngineOptions,
    EngineReady,
    EventOut,
    ForceId,
    Go,
    Load,
    Located,
    MakeRow,
    Measure,
    Move,
    Seen,
    Stacks,
    SumWeights,
    WeightsSummed,
)
from engine_daemon.tokens.builtin import BuiltinTokenizer
from engine_daemon.worker.backends.base import NoMemoryError
from engine_daemon.worker.ranks import wire
from engine_daemon.worker.ranks.leader import Leader
from tests.daemons import wait_for
from tests.worker.checkpoints import VOCABULARY, quiet, save_tiny
from tests.worker.conftest import WorkerUnderTest, opening

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("ranks")]

PROMPT = [(7 * i * i + 3 * i + 5) % VOCABULARY for i in range(CHUNK + 60)]
TIMEOUT_S = 5.0
"""Of a collective, where a pause is longer."""
PATIENCE_S = 120.0


class Ranked(WorkerUnderTest):
    """A worker of several ranks."""

    def __init__(self, folder: Path, count: int) -> None:
        self._count = count
        super().__init__(folder)

    def spawn(self) -> None:
        """As the hub does."""
        self.ranks = Ranks(self.folder / "e.sock", self._count)

    def end(self) -> None:
        """All of them."""
        self.ranks.kill()
        for child in self.ranks.children:
            child._process.wait()
        self.ranks.close()

    def bring_up(self, folder: Path) -> EngineReady:
        """Load the model in `folder`."""
        options = options_for(folder, self._count)
        self.expect_ready(options)
        self.expect(Located, PATIENCE_S)
        self.send_pieces()
        return self.expect(EngineReady, PATIENCE_S)

    def expect_ready(self, options: EngineOptions) -> None:
        """Rank 0 has said who it is, and is told to load."""
        self.expect(ChildReady, PATIENCE_S)
        self.send(Load(options=options))


def options_for(folder: Path, ranks: int) -> EngineOptions:
    return EngineOptions(
        model=str(folder), device="cpu", dtype="fp32", tp=ranks, snapshot_every=4, plain_engine=True
    )


class OneRank:
    """The same in this process, on one rank."""

    def __init__(self, folder: Path) -> None:
        from engine_daemon.worker.backends.hf import HfBackend
        from engine_daemon.worker.engine import Engine
        from engine_daemon.worker.turns import Turns

        backend = HfBackend()
        self.loaded = backend.load(options_for(folder, 1), str(folder), quiet)
        engine = Engine(backend, self.loaded, BuiltinTokenizer().table())
        self._told: list[EventOut] = []
        self._turns = Turns(engine, self._told.append, list)
        self._counts: dict[str, int] = {}

    def send(self, *messages: Message) -> None:
        """As the hub."""
        for message in messages:
            self._turns.handle(message)

    def events_until(
        self, last: Callable[[Event], bool], within_s: float = PATIENCE_S
    ) -> list[Event]:
        """Events from now to the first that `last` is true of."""
        seen: list[Event] = []
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            while self._told:
                told = self._told.pop(0)
                count = self._counts[told.session] = self._counts.get(told.session, 0) + 1
                self.send(Seen(session=told.session, next=count))
                event = unpack_event(told.event)
                assert isinstance(event, Event)
                seen.append(event)
                if last(event):
                    return seen
            self._turns.turn()
        raise AssertionError(f"the last of {seen}")


def stopped(event: Event) -> bool:
    return isinstance(event, ev.Stopped)


def column(ids: list[int]) -> bytes:
    return pack_ints("I", ids)


def moved(branch: int, ids: bytes, *, look: bool) -> Move:
    return Move(session="s1", branch=branch, ids=ids, sampler=Sampler(), salt=0, look=look)


def walk(worker: "Ranked | OneRank", pause_s: float = 0.0) -> list[Event]:
    """Prompt in chunks with its scores, steps, forced, another branch, back, naive, a row made
    again, a sampled session without cache."""
    worker.send(opening(prompt_ids=column(PROMPT), stops=Stops(score=True), candidates=VOCABULARY))
    told = worker.events_until(lambda e: isinstance(e, ev.Predicted), PATIENCE_S)
    worker.send(Go(session="s1", step=6))
    told += worker.events_until(stopped, PATIENCE_S)
    path = [e.id for e in told if isinstance(e, ev.Stepped)]
    time.sleep(pause_s)
    worker.send(ForceId(session="s1", id=5))
    told += worker.events_until(stopped, PATIENCE_S)
    other = column([*path[:5], 9])
    worker.send(moved(1, other, look=False), Go(session="s1", step=10))
    told += worker.events_until(stopped, PATIENCE_S)
    back = column([*path, 5])
    worker.send(moved(0, back, look=True), Go(session="s1", step=9))
    told += worker.events_until(stopped, PATIENCE_S)
    worker.send(Measure(session="s1", lengths=[3, 40]))
    for _ in range(2):
        told += worker.events_until(lambda e: isinstance(e, ev.NaiveMeasured), PATIENCE_S)
    worker.send(MakeRow(session="s1", branch=0, ids=column(path[:2])))
    told += worker.events_until(lambda e: isinstance(e, ev.Recomputed), PATIENCE_S)
    sampled = Sampler(greedy=False, temperature=1.3, seed=4)
    worker.send(
        Drop(session="s1"),
        opening("s2", prompt_ids=column(PROMPT[:9]), cache_mode="none", sampler=sampled),
        Go(session="s2", step=5),
    )
    told += worker.events_until(stopped, PATIENCE_S)
    return told


def same(ours: Event, theirs: Event, ranks: int) -> None:
    """The event of `ranks` ranks against that of one."""
    assert type(ours) is type(theirs)
    assert (ours.branch, ours.step) == (theirs.branch, theirs.step)
    match ours, theirs:
        case ev.Predicted(), ev.Predicted():
            same_prediction(ours, theirs, ranks)
        case ev.Stepped(), ev.Stepped():
            assert (ours.id, ours.how, ours.stop) == (theirs.id, theirs.how, theirs.stop)
        case ev.PromptScored(), ev.PromptScored():
            mine, one = unpack_floats("f", ours.logprobs), unpack_floats("f", theirs.logprobs)
            assert mine[1:] == pytest.approx(one[1:], abs=1e-4)
        case ev.Stopped(), ev.Stopped():
            assert ours.reason == theirs.reason
        case ev.NaiveMeasured(), ev.NaiveMeasured():
            assert (ours.length, ours.ms > 0) == (theirs.length, True)
        case ev.Recomputed(), ev.Recomputed():
            assert ours.restored.method == theirs.restored.method
            assert ours.restored.replayed == theirs.restored.replayed
        case _:
            pass


def same_prediction(ours: ev.Predicted, theirs: ev.Predicted, ranks: int) -> None:
    assert (ours.phase, ours.processed, ours.position) == (
        theirs.phase,
        theirs.processed,
        theirs.position,
    )
    mine = {row.id: row.logit for row in ours.candidates.rows()}
    one = {row.id: row.logit for row in theirs.candidates.rows()}
    shared = sorted(mine.keys() & one.keys())
    assert len(shared) >= len(one) - 1  # a tie at the end of the list may fall either way
    scale = max(abs(x) for x in one.values())
    assert [mine[i] for i in shared] == pytest.approx([one[i] for i in shared], abs=1e-5 * scale)
    assert (ours.restored is None) == (theirs.restored is None)
    if ours.restored is not None and theirs.restored is not None:
        assert ours.restored.method == theirs.restored.method
        assert ours.restored.replayed == theirs.restored.replayed
    assert ours.cache.tokens == theirs.cache.tokens
    # What is shared out is as much as on one rank; state that every rank needs is there N times.
    assert ours.cache.growing_bytes == theirs.cache.growing_bytes
    assert ours.cache.fixed_bytes == (theirs.cache.fixed_bytes or 0) * ranks
    if ours.restored is None or ours.restored.method != "row":
        assert ours.ranks_ms is not None
        assert len(ours.ranks_ms) == ranks
        assert min(ours.ranks_ms) > 0


@contextmanager
def ranked(count: int) -> Iterator[Ranked]:
    with (
        TemporaryDirectory(prefix="llmi-", dir="/tmp") as name,
        Ranked(Path(name), count) as worker,
    ):
        yield worker


def test_two_ranks_of_a_hybrid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recurrent state and attention; a pause that is longer than a collective may take."""
    monkeypatch.setenv("LLM_INSPECT_COLLECTIVE_TIMEOUT_S", str(TIMEOUT_S))
    folder = save_tiny(tmp_path / "tiny", "qwen3_5")
    one = OneRank(folder)
    expected = walk(one)
    with ranked(2) as worker:
        ready = worker.bring_up(folder)
        loads = [(x.done, x.total) for x in worker.progress if x.stage == "load"]
        assert (loads, loads[-1]) == (sorted(loads), (loads[-1][1], loads[-1][1]))
        told = walk(worker, pause_s=TIMEOUT_S + 1)
        assert [type(e) for e in told] == [type(e) for e in expected]
        for ours, theirs in zip(told, expected, strict=True):
            same(ours, theirs, 2)
        methods = {e.restored.method for e in told if isinstance(e, ev.Predicted) and e.restored}
        assert "snapshot" in methods
        model, alone = ready.model, one.loaded.model
        assert (model.ranks, model.device, model.engine_path) == (2, "cpu", "plain")
        assert (model.parameters, model.weights_bytes) == (alone.parameters, alone.weights_bytes)
        worker.send(SumWeights())
        assert worker.expect(WeightsSummed).checksum == model.weights_checksum
        for rank in (0, 1):
            worker.send(DumpStacks(ask=7 + rank), rank=rank)
            stacks = worker.expect(Stacks)
            assert (stacks.ask, "MainThread" in stacks.text) == (7 + rank, True)


@pytest.mark.parametrize(
    "kind", [pytest.param("llama of 4", marks=pytest.mark.soak), "qwen3_5 of 4"]
)
def test_four_ranks(tmp_path: Path, kind: str) -> None:
    folder = save_tiny(tmp_path / "tiny", kind)
    expected = walk(OneRank(folder))
    with ranked(4) as worker:
        assert worker.bring_up(folder).model.ranks == 4
        told = walk(worker)
        if kind == "llama of 4":
            worker.ranks.close()  # as the end of the hub does
            assert [child._process.wait(PATIENCE_S) for child in worker.ranks.children] == [1] * 4
        else:
            worker.ranks.children[3].kill()
            wait_for(lambda: worker.ranks.loss() is not None, PATIENCE_S)
            assert str(worker.ranks.loss()) == "rank 3 was killed (SIGKILL)"
    assert [type(e) for e in told] == [type(e) for e in expected]
    for ours, theirs in zip(told, expected, strict=True):
        same(ours, theirs, 4)


def test_a_rank_that_ends_is_the_one_that_is_named() -> None:
    assert str(Loss(2, Ending("SIGKILL", None), several=True)) == "rank 2 was killed (SIGKILL)"
    assert str(Loss(1, Ending(None, 1), several=True)) == "rank 1 ended with 1"
    assert str(Loss(0, Ending("SIGSEGV", None))) == "the engine was killed by SIGSEGV"


def test_what_the_others_reply_is_heard(tmp_path: Path) -> None:
    """The other end is played here; the real one is in the tests above."""
    pairs = [socket.socketpair() for _ in range(2)]
    leader = Leader([mine.detach() for mine, _ in pairs], tmp_path)
    one, two = (wire.Channel(theirs.detach(), wire.Order) for _, theirs in pairs)
    for channel, done in ((one, 10), (one, 30), (two, 20)):
        channel.send(wire.Loading(done=done))
    one.send(wire.Filled(free_bytes=7))
    assert leader.loaded_bytes() == 50
    two.send(wire.Loading(done=25))
    two.send(wire.Failed(code="no_memory", message="the device is full", hint="Another one"))
    with pytest.raises(InspectError) as raised:
        leader.filled()
    assert (raised.value.message, raised.value.code) == ("rank 2: the device is full", "no_memory")
    assert leader.loaded_bytes() == 55
    one.send(wire.Reserved())
    two.send(wire.Reserved(problem="no room", free_bytes=3))
    with pytest.raises(NoMemoryError) as short:
        leader.reserve(leader.new_cache("kv"), 512, 9)
    assert (short.value.message, short.value.code) == ("rank 2: no room", "no_memory")
    assert (short.value.need_bytes, short.value.have_bytes) == (9, 3)
    number = leader.read(1, [4, 5], all_rows=False)
    for channel, ms in ((one, 1.5), (two, 2.5)):
        channel.send(wire.Done(number=number, ms=ms, device_used_bytes=3, device_total_bytes=10))
    assert leader.read_times(number) == [1.5, 2.5]
    assert leader.device_bytes == (6, 20)
    orders = [one.receive() for _ in range(3)]
    assert [type(order) for order in orders] == [wire.NewCache, wire.Reserve, wire.Read]
    for channel in (one, two, *leader._channels):
        channel._socket.close()


def test_the_socket_between_two_ranks() -> None:
    mine, theirs = socket.socketpair()
    leader = wire.Channel(mine.detach(), wire.Reply)
    follower = wire.Channel(theirs.detach(), wire.Order)
    assert not follower.ready()
    order = wire.Read(number=3, cache=1, ids=column(list(range(9000))), all_rows=True)
    leader.send(order)
    assert follower.ready()
    got = follower.receive()
    assert got == order
    assert isinstance(got, wire.Read)
    assert unpack_ints("I", got.ids)[-1] == 8999
    follower.send(wire.Done(number=3, ms=1.5))
    assert leader.receive() == wire.Done(number=3, ms=1.5)
    follower._socket.sendall(struct.pack("<I", 100) + b"half")
    follower._socket.close()
    with pytest.raises(wire.GoneError):
        leader.receive()
    with pytest.raises(wire.GoneError):
        leader.send(order)
    leader._socket.close()
