"""Events folded many at once make the very columns that folding them one by one makes."""

import random
from array import array
from pathlib import Path

import pytest

from engine_daemon.protocol import events as e
from engine_daemon.protocol.codec import WireError, pack_event
from engine_daemon.protocol.values import Restored
from engine_daemon.recording.bulk import fold_run
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.reader import Recording
from tests.recording.logs import (
    closed,
    commanded,
    engine_started,
    framed,
    opened,
    packed,
    predicted,
    prompt_set,
    sampler_set,
    session,
    session_set,
    stepped,
    stopped,
)


def told(value: object) -> object:
    """Everything inside an object, comparable also where it is NaN."""
    if isinstance(value, array | bytearray):
        return repr(value)
    if isinstance(value, dict):
        return {key: told(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [told(one) for one in value]
    if hasattr(value, "__slots__") and not isinstance(value, e.Event | int):
        names = [name for name in value.__slots__ if hasattr(value, name)]
        return {name: told(getattr(value, name)) for name in names} or repr(value)
    if hasattr(value, "__dict__"):
        return {name: told(one) for name, one in vars(value).items()}
    return repr(value)


def one_by_one(log: list[tuple[int, bytes]]) -> Columns:
    columns = Columns()
    for seq, payload in log:
        columns.skip(seq)
        try:
            columns.apply(seq, payload)
        except WireError:
            columns.skip(seq + 1)
    return columns


def in_runs(log: list[tuple[int, bytes]], rng: random.Random) -> Columns:
    """The same log in pieces of any length; a piece ends where an event is missing."""
    columns = Columns()
    at = 0
    while at < len(log):
        end = at + 1
        most = at + rng.randrange(1, 12)
        while end < min(len(log), most) and log[end][0] == log[end - 1][0] + 1:
            end += 1
        fold_run(columns, log[at][0], [payload for _, payload in log[at:end]])
        at = end
    return columns


def many_kinds() -> list[e.Event]:
    """A session with everything that makes a row differ, stops, and a branch."""
    log: list[e.Event] = [opened(), commanded("open"), session_set(), sampler_set(), prompt_set()]
    log.append(engine_started())
    for step in range(4):
        log += [predicted(step), stepped(step, token=70 + step, piece=b"a" * step)]
    log += [predicted(4), stopped(4), commanded("run_to", 9, step=4)]
    log += [predicted(4, after_pause=True), stepped(4, how="forced", special=True, rank=9)]
    back = Restored(method="crop", replayed=3, ms=2.0)
    for step in range(5, 9):
        drawn = stepped(step, how="sampled", draw=0.25, final_logprob=-0.5)
        log += [predicted(step, restored=back if step == 6 else None), drawn]
    log += [predicted(9), stopped(9)]
    log.append(e.Branched(t_ns=1, wall_ns=1, branch=1, step=3, parent=0))
    for step in range(3, 8):
        log += [predicted(step, branch=1), stepped(step, branch=1, piece=b"b")]
    log += [predicted(5), stepped(2), stepped(8, branch=1)]  # strays, and one without its first
    log += [predicted(9, branch=1), stepped(9, branch=1, stop="eos"), stopped(10, "eos")]
    return [*log, closed(len(log))]


@pytest.mark.parametrize("seed", range(20))
def test_any_cutting_into_runs_gives_the_same_columns(seed: int) -> None:
    log = list(enumerate(packed(many_kinds())))
    expected = told(one_by_one(log))
    assert told(in_runs(log, random.Random(seed))) == expected


@pytest.mark.parametrize("seed", range(40))
def test_lost_and_broken_events_too(seed: int) -> None:
    rng = random.Random(seed)
    log = [
        (seq, b"\xc1" if rng.random() < 0.05 else payload)
        for seq, payload in enumerate(packed(many_kinds()))
        if seq == 0 or rng.random() < 0.9
    ]
    assert told(in_runs(log, rng)) == told(one_by_one(log))


def test_numbers_out_of_range_are_taken_as_always() -> None:
    log = list(enumerate(packed(session([b"A", b"B"]))))
    at = next(k for k, (_, payload) in enumerate(log) if b"Stepped" in payload)
    log[at] = (at, pack_event(stepped(0, token=2**40, rank=-3)))
    columns = in_runs(log, random.Random(1))
    assert told(columns) == told(one_by_one(log))
    assert columns.ids[0] == 2**32 - 1


def test_what_only_looks_like_a_step_is_none() -> None:
    broken = pack_event(stepped(0)).replace(b"\xa7Stepped", b"\xa7Steppee")
    log = list(enumerate([*packed([opened(), prompt_set(), predicted(0)]), broken]))
    columns = in_runs(log, random.Random(1))
    assert len(columns) == 0
    assert told(columns) == told(one_by_one(log))


def test_opening_folds_on_the_way(tmp_path: Path) -> None:
    path = tmp_path / "a.lir"
    frames = framed(packed(many_kinds()))
    whole = b"".join(frames)
    cut = b"".join(frames[:9])
    path.write_bytes(cut)
    columns = Columns()
    with Recording.open(path, columns) as recording:
        assert told(columns) == told(recording.columns())
        path.write_bytes(whole)
        assert recording.follow(columns) == len(frames) - 9
        assert told(columns) == told(recording.columns())


def test_what_was_appended_meanwhile_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.lir"
    frames = framed(packed(many_kinds()))
    path.write_bytes(b"".join(frames[:9]))
    with Recording.open(path) as recording:
        path.write_bytes(b"".join(frames))
        assert recording.columns().next == 9
