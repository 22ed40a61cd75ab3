"""The fold: order, what it keeps of each event, and where it says a session stands."""

import msgspec
import pytest

from engine_daemon.protocol import events as e
from engine_daemon.protocol.codec import WireError, pack_event
from engine_daemon.protocol.state import Place
from engine_daemon.protocol.values import Sampler
from engine_daemon.recording.columns import Columns, GapError
from tests.protocol.condition_samples import CONDITION_SAMPLES
from tests.protocol.samples import SAMPLES
from tests.protocol.samples_filing import FILING
from tests.recording.logs import (
    UNKNOWN,
    closed,
    commanded,
    engine_started,
    fold,
    opened,
    predicted,
    prompt_set,
    reopened,
    sampler_set,
    session,
    stepped,
    stopped,
)

# Order ----------------------------------------------------------------------------------------


def test_a_gap_names_the_event_to_ask_for_and_changes_nothing() -> None:
    columns = fold(opened())
    for seq in (0, 2):
        with pytest.raises(GapError) as caught:
            columns.apply(seq, pack_event(closed(1)))
        assert (caught.value.expected, caught.value.seq) == (1, seq)
    assert (columns.next, columns.closed) == (1, False)


def test_bytes_that_are_no_event_change_nothing() -> None:
    columns = fold(opened())
    with pytest.raises(WireError):
        columns.apply(1, b"\xc1")
    assert columns.next == 1


@pytest.mark.parametrize("column", ["special", "added", "starts", "ends", "piece_len", "ids"])
def test_a_prompt_whose_columns_do_not_fit_is_refused(column: str) -> None:
    bad = msgspec.structs.replace(prompt_set(), **{column: b"\x01\x00"})
    with pytest.raises(WireError, match="PromptSet"):
        Columns().apply(0, pack_event(bad))
    bad = msgspec.structs.replace(prompt_set(), pieces=b"")
    with pytest.raises(WireError, match="pieces"):
        Columns().apply(0, pack_event(bad))


def test_an_unknown_kind_is_counted_and_skipped() -> None:
    columns = fold(opened())
    assert columns.apply(1, UNKNOWN) == e.UnknownEvent("Teleport")
    assert columns.next == 2


def test_every_kind_has_an_arm() -> None:
    for kind in e.EVENTS:
        sample = {**SAMPLES, **CONDITION_SAMPLES, **FILING}[kind.__name__]
        assert isinstance(sample, e.Event)
        assert Columns().apply(0, pack_event(sample)) == sample


def test_events_that_do_not_fit_the_path_are_counted_not_shown() -> None:
    columns = fold(*session([b"A", b"B"]))
    before = columns.text()
    for event in (
        predicted(0),
        stepped(1),
        stepped(7),
        predicted(4_000_000_000),
        stepped(2, branch=1),
        predicted(2, branch=1),
    ):
        columns.apply(columns.next, pack_event(event))
    assert (columns.strays, columns.text(), len(columns)) == (6, before, 2)


def test_a_hole_cannot_make_rows_without_end() -> None:
    columns = fold(opened())
    columns.skip(2**60)
    columns.apply(2**60, pack_event(stepped(2**60)))
    assert (len(columns), columns.strays) == (0, 1)


# Where it stands ------------------------------------------------------------------------------


def test_the_life_of_a_session() -> None:
    columns = Columns()

    def then(event: e.Event) -> tuple[str, str, int]:
        columns.apply(columns.next, pack_event(event))
        return columns.status, columns.place.kind, columns.place.step

    assert then(opened()) == ("waiting", "waiting", 0)
    assert then(commanded("open", goal=0)) == ("waiting", "waiting", 0)
    assert then(prompt_set()) == ("waiting", "waiting", 0)
    assert then(predicted(0)) == ("paused", "pending", 0)
    assert then(stopped(0)) == ("paused", "pending", 0)
    assert then(commanded("run_to", 1)) == ("running", "pending", 0)
    assert (columns.goal, columns.stop) == (1, None)
    assert then(stepped(0)) == ("running", "pending", 1)
    assert columns.pending is None
    assert then(predicted(1)) == ("running", "pending", 1)
    assert then(stopped(1)) == ("paused", "pending", 1)
    assert columns.stop is not None
    assert columns.stop.reason == "goal"
    assert then(commanded("set_sampler")) == ("paused", "pending", 1)
    assert then(commanded("force")) == ("running", "pending", 1)
    assert then(stepped(1, stop="eos", special=True)) == ("running", "ended", 2)
    assert then(stopped(2, "eos", pending=False)) == ("ended", "ended", 2)
    assert columns.place == Place(kind="ended", step=2, reason="eos")
    assert then(commanded("run_to", 2)) == ("running", "ended", 2)
    assert then(predicted(2)) == ("running", "pending", 2)
    assert then(stopped(2)) == ("paused", "pending", 2)
    assert then(closed(15)) == ("closed", "pending", 2)
    assert then(reopened()) == ("paused", "pending", 2)


def test_a_session_opened_running_runs_from_its_first_distribution() -> None:
    assert fold(opened(), commanded("open", goal=None)).status == "waiting"
    assert fold(opened(), commanded("open", goal=None), predicted(0)).status == "running"
    assert fold(opened(), commanded("open", goal=5), predicted(0)).status == "running"


def test_pausing_is_not_standing() -> None:
    running = [opened(), commanded("open", goal=None), predicted(0), commanded("pause")]
    assert fold(*running).status == "running"
    assert fold(*running, stopped(0, "pause")).status == "paused"


def test_a_log_left_running_is_paused_when_it_is_taken_up() -> None:
    left = [opened(), commanded("open", goal=None), predicted(0), stepped(0)]
    assert fold(*left).status == "running"
    columns = fold(*left, reopened())
    assert (columns.status, columns.place.kind, columns.pending) == ("paused", "pending", None)
    ended = fold(*left, predicted(1), stepped(1, stop="context"), reopened())
    assert (ended.status, ended.place.reason) == ("ended", "context")


def test_a_lost_engine_is_remembered_until_the_next_one() -> None:
    lost = e.EngineLost(t_ns=1, wall_ns=2, engine=1, rank=0, signal="SIGKILL")
    assert fold(opened(), engine_started(), lost).lost == lost
    assert fold(opened(), engine_started(), lost, engine_started()).lost is None


def test_last_known_values_are_the_last() -> None:
    sampler = Sampler(greedy=False, seed=9)
    columns = fold(*session(), sampler_set(3, sampler, salt=2))
    assert (columns.sampler, columns.salt) == (sampler, 2)
    assert columns.opened is not None
    assert columns.opened.session == "7ZK3M9QP"
    assert columns.limits is not None
    assert columns.limits.max_steps == 3
    rejected = e.PromptRejected(t_ns=1, wall_ns=2, code="bad_arg", message="empty")
    assert fold(opened(), rejected).rejected == rejected


def test_the_last_distribution_before_the_pick_counts() -> None:
    columns = fold(predicted(0, entropy=1.0), predicted(0, entropy=2.0))
    assert columns.pending is not None
    assert (columns.pending.entropy_bits, columns.seq_pending) == (2.0, 1)
    columns.apply(2, pack_event(stepped(0)))
    assert (columns.entropy[0], columns.seq_predicted[0]) == (2.0, 1)
    assert len(columns) == 1


def test_the_prompt_is_rows_once_and_ids_always() -> None:
    columns = fold(opened(), prompt_set([b"Gr", "ü".encode(), b"n"]))
    assert [token.piece for token in columns.prompt_tokens] == [b"<bos>", b"Gr", "ü".encode(), b"n"]
    assert columns.prompt_tokens is columns.prompt_tokens
    assert columns.prompt_ids == [257, 10, 11, 12]
    assert columns.prompt_tokens[0].start is None
    assert (columns.prompt_tokens[2].start, columns.prompt_tokens[2].end) == (2, 4)
    assert (list(Columns().prompt_tokens), Columns().prompt_ids) == ([], [])


def test_an_empty_session_is_not_false() -> None:
    assert Columns()


# Long prompts, scores, naive points -----------------------------------------------------------


def prefilled(done: int, step: int = 0) -> e.Prefilled:
    return e.Prefilled(t_ns=1, wall_ns=2, step=step, done=done, total=1300, forward_ms=9.0)


def test_a_prompt_that_is_read_in_chunks() -> None:
    def stand(*log: e.Event) -> tuple[str, str, int]:
        columns = fold(opened(), *log)
        return columns.status, columns.place.kind, columns.place.done

    opening, running = commanded("open", goal=0), commanded("open", goal=None)
    assert stand(opening, prefilled(512)) == ("waiting", "prefill", 512)
    assert stand(running, prefilled(512), prefilled(1024)) == ("running", "prefill", 1024)
    halted = (opening, prefilled(512), stopped(0, "pause", pending=False))
    assert stand(*halted) == ("paused", "prefill", 512)
    going_on = (*halted, commanded("run_to", goal=0))
    assert stand(*going_on) == ("running", "prefill", 512)
    assert stand(*going_on, prefilled(1024), predicted(0)) == ("running", "pending", 0)
    lost = e.EngineLost(t_ns=1, wall_ns=2, engine=1, rank=0, signal="SIGKILL")
    assert stand(*halted, lost) == ("paused", "waiting", 0)
    assert stand(*halted, reopened()) == ("paused", "waiting", 0)
    assert stand(opening, prefilled(512), reopened()) == ("waiting", "waiting", 0)
    failed = (*going_on, stopped(0, "no_memory", pending=False))
    assert stand(*failed) == ("paused", "waiting", 0)


def test_a_sequence_that_is_read_again_keeps_what_was_recorded() -> None:
    columns = fold(*session([b"A", b"B"], close=False), commanded("run_to", step=2))
    columns.fold(columns.next, prefilled(512, step=2))
    assert (columns.place.kind, columns.place.step, len(columns)) == ("prefill", 2, 2)
    columns.fold(columns.next, predicted(2))
    assert (columns.place.kind, columns.place.step) == ("pending", 2)


def test_another_path_is_read_anew_and_nothing_is_measured_on_it() -> None:
    columns = fold(*session([b"A", b"B"], close=False), commanded("measure_naive", goal=3))
    columns.fold(columns.next, prefilled(512, step=2))
    columns.fold(columns.next, e.Branched(branch=1, step=1, parent=0, t_ns=1, wall_ns=2))
    assert (columns.place.kind, columns.place.branch, columns.measuring) == ("pending", 1, 0)
    chunk = e.Prefilled(branch=1, step=1, done=512, total=1300, forward_ms=9.0, t_ns=1, wall_ns=2)
    columns.fold(columns.next, chunk)
    assert columns.place == Place(kind="prefill", branch=1, step=1, done=512, total=1300)
    released = e.CacheReleased(branch=1, step=1, bytes=4096, why="cache", t_ns=1, wall_ns=2)
    columns.fold(columns.next, released)
    assert (columns.place.kind, columns.place.done) == ("pending", 0)
    columns.fold(columns.next, chunk)
    columns.fold(columns.next, e.Switched(branch=0, step=2, t_ns=1, wall_ns=2))
    assert (columns.place.kind, columns.place.branch, columns.place.step) == ("ended", 0, 2)


def test_scores_of_the_prompt_and_columns_that_do_not_fit() -> None:
    scored = SAMPLES["PromptScored"]
    assert isinstance(scored, e.PromptScored)
    columns = fold(opened())
    assert columns.scored is None
    columns.fold(1, scored)
    logprobs, ranks = columns.prompt_scores
    assert (logprobs[1:], ranks) == ([-1.5], [0, 3])
    for bad in (b"\x00" * 3, b"\x00" * 12):
        with pytest.raises(WireError, match="PromptScored"):
            columns.fold(2, msgspec.structs.replace(scored, ranks=bad))
    assert columns.next == 2


def test_naive_points_and_how_many_are_to_come() -> None:
    def naive(length: int, left: int) -> e.NaiveMeasured:
        return e.NaiveMeasured(t_ns=1, wall_ns=2, length=length, ms=length / 2, left=left)

    columns = fold(opened(), predicted(0), commanded("measure_naive", goal=3), naive(8, 2))
    assert (columns.naive, columns.measuring, columns.status) == ([(8, 4.0)], 2, "paused")
    columns.fold(columns.next, commanded("pause"))
    columns.fold(columns.next, naive(16, 1))
    assert (columns.naive, columns.measuring) == ([(8, 4.0), (16, 8.0)], 0)
