"""JSON lines: CONTRACT's keys to the letter, the two events of a step joined, and how it ends."""

import json
import math
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.export.jsonl import JsonLines, error_line, export, to_bytes
from engine_daemon.protocol import events as e
from engine_daemon.protocol.codec import WireError
from engine_daemon.protocol.values import Restored, Sampler, StopReason
from engine_daemon.recording.columns import GapError
from engine_daemon.recording.reader import Recording
from tests.recording.logs import (
    MODEL,
    closed,
    commanded,
    engine_started,
    framed,
    opened,
    packed,
    predicted,
    prompt_set,
    reopened,
    sampler_set,
    session,
    session_set,
    stepped,
    stopped,
    write_log,
)

CONTRACT = {
    "ready": "event model engine protocol warnings",
    "ready.model": "name architecture parameters dtype device ranks layers layer_kinds vocabulary"
    " context_length weights_bytes weights_files load_s weights_checksum engine_path",
    "ready.model.weights_files": "file bytes sha256",
    "prompt": "event session text normalised tokens template seed warnings tokenize_ms",
    "prompt.tokens": "id text bytes special start end",
    "step": "event session branch step position phase processed chosen candidates ties_cut watched"
    " entropy_bits logsumexp margin tail_prob timing cache restored work stop",
    "step.chosen": "id text bytes logit logprob prob final_prob rank how draw interval",
    "step.candidates": "id text bytes logit logprob prob final_prob dropped_by masked",
    "step.timing": "tokenize_ms forward_ms pick_ms append_ms probe_ms total_ms waited_ms ranks_ms"
    " after_pause",
    "step.cache": "mode tokens growing_bytes fixed_bytes allocated_bytes capacity_tokens"
    " limit_tokens kinds",
    "step.restored": "method replayed ms",
    "step.work": "flops bytes_moved kind",
    "pending": "event session branch step position phase processed candidates ties_cut watched"
    " entropy_bits logsumexp margin tail_prob timing cache restored work stop",
    "pending.timing": "tokenize_ms forward_ms probe_ms waited_ms ranks_ms after_pause",
    "done": "event session branch reason condition at steps text ids",
    "done.at": "step pending",
    "error": "event code message hint",
}


def keys(line: object) -> list[str]:
    """The keys in order; of a list, those of its first object."""
    first = line[0] if isinstance(line, list) else line
    assert isinstance(first, dict)
    return list(first)


def check_keys(line: dict[str, object]) -> None:
    """The line and the objects in it have exactly CONTRACT's keys, in its order."""
    name = str(line["event"])
    assert keys(line) == CONTRACT[name].split()
    for path, expected in CONTRACT.items():
        head, *rest = path.split(".")
        if head != name or not rest:
            continue
        inner: object = line
        for part in rest:
            assert isinstance(inner, dict)
            inner = inner[part]
        if inner:
            assert keys(inner) == expected.split(), path


def lines_of(*events: e.Event, ending: bool = True) -> list[dict[str, object]]:
    """The lines of a log, as a reader of the output sees them."""
    lines = JsonLines()
    made = [line for seq, event in enumerate(events) for line in lines.feed(seq, event)]
    made += lines.ending() if ending else []
    return [json.loads(to_bytes(line), parse_constant=pytest.fail) for line in made]


def test_a_whole_session_in_order_with_contracts_keys() -> None:
    lines = lines_of(*session([b"A", b"B", b"C"]))
    names = [line["event"] for line in lines]
    assert names == ["prompt", "ready", "step", "step", "step", "done"]
    for line in lines:
        check_keys(line)


def test_ready_before_the_prompt_stays_before_it() -> None:
    lines = lines_of(opened(), engine_started(), prompt_set())
    assert [line["event"] for line in lines] == ["ready", "prompt"]
    assert lines[0]["engine"] == "scripted"
    assert lines[0]["protocol"] == "1.0"
    assert lines[0]["model"] == {
        **msgspec.structs.asdict(MODEL),
        "weights_files": [{"file": "model.safetensors", "bytes": 4096, "sha256": None}],
    }


def test_ready_comes_again_only_for_another_engine() -> None:
    again = msgspec.structs.replace(MODEL, load_s=9.0)
    other = msgspec.structs.replace(MODEL, device="cuda:0")
    log = [opened(), engine_started(), engine_started(again, 2), engine_started(other, 3)]
    assert [line["event"] for line in lines_of(*log)] == ["ready", "ready"]


def test_the_prompt_line() -> None:
    sampler = Sampler(greedy=False, seed=2**64 - 1)
    (line,) = lines_of(
        opened(), sampler_set(sampler=sampler), prompt_set([b"Gr", b"\xc3", b"\xbc"])
    )
    assert line["session"] == "7ZK3M9QP"
    assert line["text"] == "Grü"
    assert line["normalised"] is None
    assert line["seed"] == 2**64 - 1
    assert line["tokens"] == [
        {"id": 257, "text": "<bos>", "bytes": "", "special": True, "start": None, "end": None},
        {"id": 10, "text": "Gr", "bytes": "4772", "special": False, "start": 0, "end": 2},
        {"id": 11, "text": "<C3>", "bytes": "c3", "special": False, "start": 2, "end": 3},
        {"id": 12, "text": "<BC>", "bytes": "bc", "special": False, "start": 3, "end": 4},
    ]


def test_a_written_special_contributes_its_form() -> None:
    prompt = msgspec.structs.replace(prompt_set(), added=bytes([0, 0, 0]))
    (line,) = lines_of(opened(), prompt)
    tokens = line["tokens"]
    assert isinstance(tokens, list)
    assert (tokens[0]["special"], tokens[0]["bytes"]) == (True, b"<bos>".hex())


def test_a_step_joins_its_two_events() -> None:
    restored = Restored(method="prefill", replayed=7, ms=180.5)
    seen = predicted(0, logsumexp=4.0, restored=restored, ranks_ms=[2.0, 1.5], waited_ms=3.0)
    it = stepped(0, how="sampled", draw=0.5, before=0.5, final_logprob=math.log(0.25), stop="user")
    (line,) = lines_of(opened(), seen, it, ending=False)
    check_keys(line)
    assert [*line.values()][1:7] == ["7ZK3M9QP", 0, 0, 3, "prefill", 3]  # session to processed
    assert line["chosen"] == {
        "id": 65,
        "text": "A",
        "bytes": "41",
        "logit": 3.5,
        "logprob": -0.5,
        "prob": math.exp(-0.5),
        "final_prob": 0.25,
        "rank": 1,
        "how": "sampled",
        "draw": 0.5,
        "interval": [0.5, 0.75],
    }
    assert line["timing"] == {
        "tokenize_ms": 0.0,
        "forward_ms": 2.0,
        "pick_ms": 0.25,
        "append_ms": 0.125,
        "probe_ms": 0.5,
        "total_ms": 2.875,
        "waited_ms": 3.0,
        "ranks_ms": [2.0, 1.5],
        "after_pause": False,
    }
    assert line["restored"] == {"method": "prefill", "replayed": 7, "ms": 180.5}
    assert line["work"] == {"flops": 100, "bytes_moved": 200, "kind": "derived"}
    assert (line["stop"], line["watched"]) == ("user", [])


def test_candidates_say_what_dropped_them_and_show_no_infinity() -> None:
    (line,) = lines_of(opened(), predicted(0, logsumexp=4.0), stepped(0), ending=False)
    candidates = line["candidates"]
    assert isinstance(candidates, list)
    kept, dropped, masked = candidates
    assert (kept["logit"], kept["final_prob"], kept["dropped_by"]) == (3.5, 1.0, None)
    assert dropped == {
        "id": 66,
        "text": "<E2 98>",
        "bytes": "e298",
        "logit": 2.0,
        "logprob": -2.0,
        "prob": math.exp(-2.0),
        "final_prob": 0.0,
        "dropped_by": "greedy",
        "masked": False,
    }
    assert (masked["logit"], masked["logprob"], masked["prob"]) == (None, None, 0.0)
    assert (masked["masked"], masked["dropped_by"], masked["bytes"]) == (True, "mask", "")


def test_no_line_holds_a_number_that_is_none() -> None:
    nan, inf = math.nan, math.inf
    seen = predicted(0, entropy=nan, logsumexp=inf, margin=-inf, forward_ms=nan, ranks_ms=[nan])
    lines = lines_of(opened(), seen, stepped(0, logit=nan, final_logprob=nan, total_ms=inf))
    (line,) = [line for line in lines if line["event"] == "step"]
    assert line["entropy_bits"] is None
    check_keys(line)


def test_the_last_distribution_before_the_pick_is_the_one_joined() -> None:
    lines = lines_of(opened(), predicted(0, entropy=1.0), predicted(0, entropy=2.0), stepped(0))
    assert [line["entropy_bits"] for line in lines if line["event"] == "step"] == [2.0]


def test_a_generated_special_is_named_and_adds_nothing() -> None:
    log = [
        opened(),
        predicted(0),
        stepped(0, piece=b"A"),
        predicted(1),
        stepped(1, token=256, piece=b"<eos>", special=True, stop="eos"),
        stopped(2, "eos", pending=False),
    ]
    *_, last, done = lines_of(*log)
    chosen = last["chosen"]
    assert isinstance(chosen, dict)
    assert (chosen["text"], chosen["bytes"], last["stop"]) == ("<eos>", "", "eos")
    assert (done["text"], done["ids"], done["steps"]) == ("A", [65, 256], 2)


# `bytes` joined give `done.text` ---------------------------------------------------------------


def joined(lines: list[dict[str, object]]) -> bytes:
    """What a script does with the output."""
    raw = b""
    for line in lines:
        if line["event"] == "step":
            chosen = line["chosen"]
            assert isinstance(chosen, dict)
            raw += bytes.fromhex(chosen["bytes"])
    return raw


def test_bytes_of_a_snowman_in_three_tokens_join_to_the_text() -> None:
    lines = lines_of(*session([b"a \xe2", b"\x98", b"\x83!", "é".encode()]))
    texts = [line["chosen"]["text"] for line in lines if line["event"] == "step"]  # type: ignore[index]
    assert texts == ["a <E2>", "<98>", "<83>!", "é"]
    assert lines[-1]["text"] == "a ☃!é"
    assert joined(lines).decode() == lines[-1]["text"]


@given(st.text(min_size=1), st.data())
def test_bytes_joined_are_the_text_wherever_tokens_split_it(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=9)) | {0, len(raw)})
    lines = lines_of(*session([raw[a:b] for a, b in pairwise(cuts)]))
    assert lines[-1]["text"] == text
    assert joined(lines) == raw


def test_bytes_that_are_no_utf8_show_in_the_text_and_stay_in_bytes() -> None:
    lines = lines_of(*session([b"a", b"\xe2\x98", b"b"]))
    assert lines[-1]["text"] == "a<E2 98>b"
    assert joined(lines) == b"a\xe2\x98b"


# Endings ---------------------------------------------------------------------------------------

ONE = [opened(), predicted(0), stepped(0)]


@pytest.mark.parametrize(
    ("log", "last", "at"),
    [
        ([*ONE[:2], stepped(0, stop="eos"), stopped(1, "eos", pending=False)], "eos", (0, False)),
        (
            [*ONE[:2], stepped(0, stop="condition"), predicted(1), stopped(1, "condition")],
            "condition",
            (0, False),
        ),
        ([*ONE, predicted(1), stopped(1, "condition")], "condition", (1, True)),
        ([*ONE, predicted(1), stopped(1, "timeout")], "timeout", (1, True)),
        ([*ONE, predicted(1), stopped(1, "pause")], "user", (1, True)),
        ([*ONE, predicted(1), stopped(1, "goal")], "user", (1, True)),
        ([*ONE, predicted(1)], "user", (1, True)),
        (ONE, "user", (0, False)),
        ([opened(), session_set(max_steps=0), predicted(0), stopped(0)], "length", (0, True)),
    ],
)
def test_a_closed_session_ends_with_done(
    log: list[e.Event], last: str, at: tuple[int, bool]
) -> None:
    lines = lines_of(*log, closed(len(log)))
    done = lines[-1]
    check_keys(done)
    assert (done["event"], done["reason"], done["condition"]) == ("done", last, None)
    assert done["at"] == {"step": at[0], "pending": at[1]}
    before = lines[-2]["event"] if len(lines) > 1 else None
    assert (before == "pending") == at[1]
    if at[1]:
        check_keys(lines[-2])


@pytest.mark.parametrize("reason", ["eos", "length", "context"])
def test_an_ended_session_is_done_also_while_it_is_open(reason: e.StepStop) -> None:
    log = [*ONE[:2], stepped(0, stop=reason)]
    assert [line["event"] for line in lines_of(*log, reopened())] == ["step", "done"]


def test_a_session_that_is_not_over_ends_with_pending() -> None:
    lines = lines_of(*ONE, predicted(1), stopped(1, "pause"))
    assert [line["event"] for line in lines] == ["step", "pending"]
    assert lines[-1]["step"] == 1
    assert lines[-1]["stop"] is None


def test_going_on_after_an_end_takes_the_end_back() -> None:
    log = [*ONE[:2], stepped(0, stop="eos"), stopped(1, "eos", pending=False)]
    log += [commanded("run_to", 1), predicted(1), stopped(1)]
    assert [line["event"] for line in lines_of(*log)] == ["step", "pending"]


@pytest.mark.parametrize("reason", ["no_memory", "error", "engine_lost", "disk_full"])
def test_a_fault_ends_with_an_error(reason: StopReason) -> None:
    lines = lines_of(*ONE, stopped(1, reason, pending=False))
    check_keys(lines[-1])
    assert (lines[-1]["event"], lines[-1]["code"]) == ("error", reason)
    assert lines[-1]["message"]


def test_missing_memory_is_told_in_bytes() -> None:
    stop = msgspec.structs.replace(stopped(1, "no_memory"), need_bytes=200, have_bytes=100)
    assert (
        lines_of(*ONE, stop)[-1]["message"] == "memory does not suffice: 200 bytes needed, 100 free"
    )


def test_a_rejected_prompt_is_one_error() -> None:
    rejected = e.PromptRejected(
        t_ns=1, wall_ns=2, code="bad_arg", message="the prompt is empty", hint="Write one"
    )
    lines = lines_of(opened(), rejected, closed(2))
    assert lines == [error_line("bad_arg", "the prompt is empty", "Write one")]


def test_an_empty_log_has_no_lines() -> None:
    assert lines_of(opened()) == []
    assert JsonLines().pending_line() is None


# Damage ----------------------------------------------------------------------------------------


def test_events_out_of_order_are_refused() -> None:
    with pytest.raises(GapError):
        JsonLines().feed(1, opened())


def test_candidates_whose_columns_do_not_fit_are_refused() -> None:
    seen = predicted(0)
    bad = msgspec.structs.replace(seen.candidates, dropped_by=bytes([9, 9, 9]))
    lines = JsonLines()
    lines.feed(0, msgspec.structs.replace(seen, candidates=bad))
    with pytest.raises(WireError):
        lines.feed(1, stepped(0))


def test_a_step_that_lost_an_event_is_left_out(tmp_path: Path) -> None:
    log = session([b"A", b"B", b"C", b"D"])
    frames = framed(packed(log))
    b_stepped = next(i for i, x in enumerate(log) if isinstance(x, e.Stepped) and x.step == 1)
    c_predicted = next(i for i, x in enumerate(log) if isinstance(x, e.Predicted) and x.step == 2)
    for lost, left in ((b_stepped, [0, 2, 3]), (c_predicted, [0, 1, 3])):
        raw = b"".join(b"?" * len(f) if i == lost else f for i, f in enumerate(frames))
        (tmp_path / "a.lir").write_bytes(raw)
        with Recording.open(tmp_path / "a.lir") as recording:
            lines = list(export(recording))
        assert [line["step"] for line in lines if line["event"] == "step"] == left
        assert lines[-1]["steps"] == 4


def test_an_id_nobody_knows_is_not_made_up(tmp_path: Path) -> None:
    log = session([b"A", b"B", b"C"])
    frames = framed(packed(log))
    b_stepped = next(i for i, x in enumerate(log) if isinstance(x, e.Stepped) and x.step == 1)
    (tmp_path / "a.lir").write_bytes(b"".join([*frames[:b_stepped], *frames[b_stepped + 1 :]]))
    with Recording.open(tmp_path / "a.lir") as recording:
        *_, done = export(recording)
    assert (done["ids"], done["text"]) == ([65, 67], "AC")


def test_an_exported_recording_is_what_was_printed_live(tmp_path: Path) -> None:
    log = session([b"A", b"\xe2\x98", b"\x83"])
    write_log(tmp_path / "a.lir", log)
    with Recording.open(tmp_path / "a.lir") as recording:
        exported = [json.loads(to_bytes(line)) for line in export(recording)]
    assert exported == lines_of(*log)
