"""Every format on every kind of recording, and what each one says against the JSON lines."""

import csv
import html
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine_daemon.export.chart import cost_chart
from engine_daemon.export.jsonl import export
from engine_daemon.export.page_text import grouped
from engine_daemon.export.registry import EXPORTERS, exporter
from engine_daemon.protocol import events as e
from engine_daemon.recording.reader import Recording
from tests.export.samples import HOSTILE, hostile, noted, samples
from tests.recording.logs import (
    commanded,
    engine_started,
    fold,
    opened,
    predicted,
    prompt_set,
    stepped,
    stopped,
    write_log,
)

KINDS = ("whole", "branched", "hostile", "opened", "open", "cut", "damaged", "beheaded")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def made(path: Path, name: str) -> bytes:
    with Recording.open(path) as recording:
        return b"".join(exporter(name)(recording))


def lines(path: Path) -> list[dict[str, Any]]:
    with Recording.open(path) as recording:
        return [dict(line) for line in export(recording)]


def steps(path: Path) -> list[dict[str, Any]]:
    return [line for line in lines(path) if line["event"] == "step"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EXPORTERS)
def test_every_format_of_every_recording(tmp_path: Path, name: str, kind: str) -> None:
    path = samples(tmp_path)[kind]
    content = made(path, name)
    match name:
        case "jsonl":
            assert [json.loads(line) for line in content.splitlines()] == lines(path)
        case "csv":
            rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
            assert len(rows) == len(steps(path))
        case "trace":
            assert json.loads(content)["traceEvents"]
        case "html":
            assert content.decode().startswith("<!doctype html>")
        case _:
            assert kind in ("opened",) or content


# csv ---------------------------------------------------------------------------------------------


def test_csv_says_what_the_json_lines_say(tmp_path: Path) -> None:
    path = samples(tmp_path)["branched"]
    rows = list(csv.DictReader(io.StringIO(made(path, "csv").decode(), newline="")))
    assert [row["branch"] for row in rows] == ["0", "0", "0", "1", "1"]
    for row, step in zip(rows, steps(path), strict=True):
        assert float(row["prob"]) == step["chosen"]["prob"]
        assert float(row["total_ms"]) == step["timing"]["total_ms"]
        assert row["bytes"] == step["chosen"]["bytes"]
        assert row["text"] == step["chosen"]["text"]
        assert int(row["cache_tokens"]) == step["cache"]["tokens"]
        assert row["stop"] == (step["stop"] or "")
        assert row["draw"] == ""


def test_csv_cells_are_no_formulas_and_steer_no_terminal(tmp_path: Path) -> None:
    path = samples(tmp_path)["hostile"]
    raw = made(path, "csv").decode()
    assert not CONTROL.search(raw.replace("\r\n", "\n"))
    rows = list(csv.DictReader(io.StringIO(raw, newline="")))
    assert bytes.fromhex("".join(row["bytes"] for row in rows)) == b"".join(HOSTILE)
    assert not [row["text"] for row in rows if row["text"].startswith(("=", "+", "-", "@"))]
    assert rows[6]["text"] == "'=cmd|' /C calc'!A0"


# trace -------------------------------------------------------------------------------------------


def timed() -> list[e.Event]:
    """A session whose clock moves: a prompt in two chunks, a pause, a restart of the machine."""

    def at(t_ms: float, **rest: object) -> dict[str, Any]:
        return {"t_ns": int(t_ms * 1e6), "wall_ns": int((5000 + t_ms) * 1e6), **rest}

    def placed(event: e.Event, t_ms: float, boot_ms: float = 0.0) -> e.Event:
        clock = {"t_ns": int((t_ms - boot_ms) * 1e6), "wall_ns": int((5000 + t_ms) * 1e6)}
        return msgspec.structs.replace(event, **clock)

    return [
        placed(opened(), 0),
        placed(commanded("open"), 1),
        placed(engine_started(), 2),
        placed(prompt_set(), 3),
        e.Prefilled(**at(40), done=512, total=600, forward_ms=30.0),
        placed(predicted(0, forward_ms=50.0), 70),
        placed(stepped(0), 72),
        placed(stopped(1), 72),
        e.Reopened(**{**at(9000), "t_ns": int(5e6)}, epoch=b"e" * 8, lost_bytes=0),
        placed(predicted(1, forward_ms=7.0), 9020, 8995),
        placed(stepped(1, piece=b"\x1b[2J"), 9022, 8995),
    ]


def test_a_trace_is_one_chrome_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.lir"
    write_log(path, timed())
    content = made(path, "trace")
    assert content.isascii()
    trace = json.loads(content, parse_constant=pytest.fail)
    marks = trace["traceEvents"]
    for mark in marks:
        assert mark["ph"] in ("X", "M", "C", "i")
        assert isinstance(mark["name"], str)
        assert isinstance(mark["pid"], int)
        assert isinstance(mark["tid"], int)
        assert mark["ts"] >= 0
        assert ("dur" in mark) == (mark["ph"] == "X")
        assert mark["ph"] != "i" or mark["s"] in "gpt"
        assert not CONTROL.search(mark["name"])
    named = {mark["args"]["name"] for mark in marks if mark["name"] == "thread_name"}
    assert {"forward", "pick", "append", "probe", "tokenize"} <= named


def test_a_traces_bars_are_as_long_as_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "a.lir"
    write_log(path, timed())
    bars = [m for m in json.loads(made(path, "trace"))["traceEvents"] if m["ph"] == "X"]
    told = steps(path)
    for stage in ("forward", "pick", "append", "probe"):
        drawn = sum(bar["dur"] for bar in bars if bar["cat"] == stage) / 1000
        assert drawn == pytest.approx(sum(step["timing"][f"{stage}_ms"] for step in told))
    # A prompt in chunks is two bars that add up to what its step says.
    first, second, later = (bar for bar in bars if bar["cat"] == "forward")
    assert (first["dur"], second["dur"]) == (30_000, 20_000)
    assert first["ts"] + first["dur"] == pytest.approx(40_000)
    # The monotonic clock began anew; the bar stands where the wall clock has it.
    assert later["ts"] + later["dur"] == pytest.approx(9_020_000 - 500)


# html --------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """A plain parser's view of a page: elements, and the text of each token."""

    def __init__(self, raw: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.tokens: dict[int, str] = {}
        self.data = ""
        self._in: list[tuple[str, dict[str, str | None]]] = []
        self.feed(raw)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        assert not [name for name in found if name.startswith("on")], found
        assert "style" not in found
        assert tag in ("svg", "line", "html", "meta") or "src" not in found
        if tag not in ("meta", "line", "circle", "polyline"):
            self._in.append((tag, found))

    def handle_endtag(self, tag: str) -> None:
        while self._in and self._in.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        for tag, attrs in self._in:
            if tag == "b":
                number = int(attrs["data-n"] or "")
                self.tokens[number] = self.tokens.get(number, "") + data
        if self._in and self._in[-1][1].get("id") == "data":
            self.data += data


def test_no_text_becomes_markup(tmp_path: Path) -> None:
    path = samples(tmp_path)["hostile"]
    raw = made(path, "html").decode()
    assert not CONTROL.search(raw)
    page = Page(raw)
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert page.tokens[1] == "</script><script>alert(1)</script>"
    assert page.tokens[6] == "&lt;$title${data}"
    data = json.loads(page.data)
    assert data["first"] == 1 + len(HOSTILE)
    assert len(data["steps"]) == len(HOSTILE)
    assert "</script><script>alert(1)</script>" in data["texts"]


def test_the_pages_numbers_are_the_json_lines(tmp_path: Path) -> None:
    path = samples(tmp_path)["branched"]
    data = json.loads(Page(made(path, "html").decode()).data)
    expected = [step for step in steps(path) if (step["branch"], step["step"]) != (0, 1)][:1]
    expected += [step for step in steps(path) if step["branch"] == 1]
    for shown, step in zip(data["steps"], expected, strict=True):
        assert shown["prob"] == pytest.approx(step["chosen"]["prob"], rel=1e-5)
        assert shown["ms"] == pytest.approx(step["timing"]["total_ms"], rel=1e-5)
        for row, candidate in zip(shown["candidates"], step["candidates"], strict=True):
            assert row[0] == candidate["id"]
            assert row[2] == pytest.approx(candidate["prob"], rel=1e-5)
            assert row[4] == (candidate["dropped_by"] or "")


def test_notes_show_at_their_steps(tmp_path: Path) -> None:
    """Found by use: what people wrote reached no export."""
    path = tmp_path / "noted.lir"
    write_log(path, noted())
    found = [json.loads(line) for line in made(path, "jsonl").splitlines()]
    told = [(x["branch"], x["step"], x["who"], x["text"]) for x in found if x["event"] == "note"]
    assert told == [
        (0, 0, "bob", "good"),
        (0, 2, "bob", "it went wrong"),
        (1, 1, "bob", "<b>why</b>"),
    ]
    page = made(path, "html").decode()
    notes = [step["notes"] for step in json.loads(Page(page).data)["steps"]]
    assert notes == [[["bob", "good"]], [["bob", "<b>why</b>"]], []]
    assert "step 2 of branch 0 · bob: it went wrong" in page
    assert '<a href="#1">step 1</a> · bob: &lt;b&gt;why&lt;/b&gt;' in page
    assert page.count(' noted"') == 2


def test_what_is_missing_is_said_on_the_page(tmp_path: Path) -> None:
    for kind, words in (("damaged", "event 8 is missing"), ("cut", "a torn event")):
        page = made(samples(tmp_path)[kind], "html").decode()
        assert words in html.unescape(page)


def test_glyphs_of_several_tokens_show_once() -> None:
    pieces = [(b" \xf0\x9f", False), (b"\x98\x80!", False), (b"\xe2", False), (b"\xff", False)]
    assert list(grouped(pieces)) == [" 😀!", None, "<E2>", "<FF>"]
    assert list(grouped([(b"\xe2\x98", False), (b"\x83", True)])) == ["<E2 98>", "<83>"]
    assert list(grouped([(b"\n", False), (b"", True), (b"", False)])) == ["⏎\n", "∅", ""]


def test_a_long_chart_keeps_its_peaks() -> None:
    log: list[e.Event] = [opened(), prompt_set()]
    for step in range(6000):
        log += [predicted(step), stepped(step, total_ms=80.0 if step == 4567 else 5.0)]
    chart = cost_chart(fold(*log))
    assert chart.svg.count(",") < 3000
    places = [pair.split(",") for pair in re.findall(r"[\d.]+,[\d.]+", chart.svg)]
    assert min(float(y) for _, y in places) == 12.0
    assert len(chart.xs) == 6000
    assert chart.xs == sorted(chart.xs, key=lambda x: x or 0.0)


def test_hostile_samples_are_what_they_say() -> None:
    assert fold(*hostile()).text() == b"".join(HOSTILE)


def test_a_time_beyond_all_numbers_leaves_the_rest_of_a_trace(tmp_path: Path) -> None:
    wild = msgspec.structs.replace(predicted(1), forward_ms=1e308)
    events = [opened(), engine_started(), prompt_set(), predicted(0), stepped(0, piece=b"A"), wild]
    write_log(tmp_path / "a.lir", [*events, stepped(1, piece=b"B")])
    told = json.loads(made(tmp_path / "a.lir", "trace"))["traceEvents"]
    forwards = [mark for mark in told if mark["ph"] == "X" and mark["args"].get("step") == 0]
    assert forwards
    assert all(mark.get("dur", 0) < 1e300 for mark in told)


@pytest.mark.parametrize("piece", [b"\t=1", b"\n=1", "＝1".encode(), b"@x", b"+1"])
def test_no_first_character_makes_a_cell_a_formula(tmp_path: Path, piece: bytes) -> None:
    events = [opened(), engine_started(), prompt_set(), predicted(0), stepped(0, piece=piece)]
    write_log(tmp_path / "a.lir", events)
    (row,) = csv.DictReader(io.StringIO(made(tmp_path / "a.lir", "csv").decode(), newline=""))
    assert row["text"].startswith("'")
    assert bytes.fromhex(row["bytes"]) == piece
