"""`export` and `diff` as commands, and the page in a real browser."""

import csv
import io
import json
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.browser import Browser
from tests.end_to_end.command import COMMAND, SCRIPTED, Place
from tests.export.samples import HOSTILE, samples

WORDS = ("run", *SCRIPTED, "--json", "--steps", "12", "--temperature", "0.9", "--seed", "5")


def test_what_run_printed_is_what_export_prints(place: Place) -> None:
    live = place.run(*WORDS, "--record", "a.lir", "Once upon")
    exported = place.run("export", "a.lir", "--to", "jsonl")
    assert exported.out == live.out
    assert exported.err == ""
    session = json.loads(live.out.splitlines()[-1])["session"]
    # The daemon's own recording too, named by the session it is of.
    assert place.run("export", session[:5].lower(), "--to", "jsonl").out == live.out
    rows = csv.DictReader(io.StringIO(place.run("export", "a.lir", "--to", "csv").out.decode()))
    steps = [line for line in live.lines if line["event"] == "step"]
    assert [int(row["id"]) for row in rows] == [step["chosen"]["id"] for step in steps]
    text = place.run("export", "a.lir", "--to", "text").out.decode()
    assert text == "Once upon" + live.lines[-1]["text"]


def test_a_file_is_there_whole_or_not_at_all(place: Place) -> None:
    samples(place.cwd)
    done = place.run("export", "whole.lir", "--to", "trace", "--out", "a.json")
    assert (done.out, done.err) == (b"", "written to a.json\n")
    first = (place.cwd / "a.json").read_bytes()
    assert json.loads(first)["otherData"]["session"] == "7ZK3M9QP"
    assert sorted(path.name for path in place.cwd.iterdir() if path.suffix != ".lir") == ["a.json"]
    place.run("export", "whole.lir", "--to", "trace", "--out", "/dev/null")
    refused = place.run("export", "whole.lir", "--to", "csv", "--out", "cut.lir", code=2)
    assert "is a recording" in refused.err
    nowhere = place.run("export", "whole.lir", "--to", "csv", "--out", "no/where.csv", code=4)
    assert "cannot write no/where.csv" in nowhere.err
    assert (place.cwd / "a.json").read_bytes() == first


def test_what_is_sound_is_given_and_what_is_missing_is_named(place: Place) -> None:
    samples(place.cwd)
    whole = place.run("export", "whole.lir", "--to", "jsonl").lines
    for kind, words in (
        ("cut", "a torn event; they are ignored"),
        ("open", "it has no end"),
        ("damaged", "event 8 is missing"),
        ("beheaded", "event 0 is missing"),
    ):
        done = place.run("export", f"{kind}.lir", "--to", "jsonl")
        assert words in done.err, kind
        ids = [line["chosen"]["id"] for line in done.lines if line["event"] == "step"]
        told = [line["chosen"]["id"] for line in whole if line["event"] == "step"]
        assert [i for i in told if i in ids] == ids
        assert 0 < len(ids) <= len(told)


@pytest.mark.parametrize("command", ["export", "diff", "replay"])
@pytest.mark.parametrize("kind", ["foreign", "newer", "empty", "torn", "folder"])
@pytest.mark.fault("R7")
def test_nothing_sound_is_exit_6(place: Place, command: str, kind: str) -> None:
    whole = samples(place.cwd)["whole"].read_bytes()
    path = place.cwd / "x.lir"
    match kind:
        case "foreign":
            path.write_bytes(b"GIF89a" * 100)
        case "newer":
            from tests.recording.logs import framed, opened, packed

            path.write_bytes(b"".join(framed(packed([opened(format=9)]))))
        case "empty":
            path.touch()
        case "torn":
            path.write_bytes(whole[:50])
        case _:
            path.mkdir()
    words = {
        "export": ("export", "x.lir", "--to", "text"),
        "diff": ("diff", "whole.lir", "x.lir"),
        "replay": ("replay", "x.lir"),
    }[command]
    if command == "replay":
        with place.terminal(*words) as terminal:
            assert "x.lir" in terminal.finish(6)
        return
    done = place.run(*words, code=6)
    assert done.out == b""
    assert "x.lir" in done.err
    assert len(done.err.splitlines()) <= 2


def test_wrong_usage(place: Place) -> None:
    samples(place.cwd)
    for words, said in (
        (("export", "whole.lir"), "needs --to FORMAT"),
        (("export", "whole.lir", "--to", "cvs"), "Did you mean csv?"),
        (("export", "nothing.lir", "--to", "csv"), "there is no file nothing.lir"),
        (("diff", "whole.lir"), "diff needs B"),
        (("diff", "whole.lir", "nothing.lir"), "there is no file nothing.lir"),
        (("diff", "whole.lir", "whole.lir", "--tol", "2"), "--tol"),
        (("replay", "nothing.lir"), ""),
    ):
        assert said in place.run(*words, code=2).err


def test_a_reader_that_leaves_is_no_error(place: Place) -> None:
    samples(place.cwd)
    script = f"{COMMAND} export hostile.lir --to html | head -c 10"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script],
        env=place.env,
        cwd=place.cwd,
        capture_output=True,
        check=False,
    )
    assert done.stdout == b"<!doctype "
    assert done.stderr == b""


@pytest.mark.fault("S9")
def test_on_a_terminal_nothing_steers_it(place: Place) -> None:
    samples(place.cwd)
    for name in ("text", "csv", "jsonl"):
        with place.terminal("export", "hostile.lir", "--to", name) as terminal:
            terminal.finish()
            assert b"\x1b" not in terminal.output
            assert b"\x07" not in terminal.output
            assert "\u202e" not in terminal.output.decode()


# diff --------------------------------------------------------------------------------------------


def test_two_runs_on_one_seed_are_the_same(place: Place) -> None:
    for name in ("a", "b"):
        place.run(*WORDS, "--record", f"{name}.lir", "Once upon")
    same = place.run("diff", "a.lir", "b.lir", "--tol", "0")
    assert "the same: 12 steps, probabilities equal" in same.out.decode()
    place.run(*WORDS[:-1], "6", "--record", "c.lir", "Once upon")
    other = place.run("diff", "a.lir", "c.lir", code=1)
    assert "they part at step" in other.out.decode()
    assert "T 0.9 seed 5" in other.out.decode()
    assert "T 0.9 seed 6" in other.out.decode()
    lines = place.run("diff", "a.lir", "c.lir", "--json", code=1).lines
    parts = next(line for line in lines if line["event"] == "parts")
    live = [place.run("export", f"{n}.lir", "--to", "jsonl").lines for n in "ac"]
    ids = [[x["chosen"]["id"] for x in run if x["event"] == "step"] for run in live]
    first = next(k for k, (x, y) in enumerate(zip(*ids, strict=True)) if x != y)
    assert parts["step"] == first == lines[-1]["common"]
    assert (parts["a"]["id"], parts["b"]["id"]) == (ids[0][first], ids[1][first])
    assert [line["step"] for line in lines if line["event"] == "step"] == [*range(first + 1)]
    assert lines[-1]["differs"]
    assert [lines[0][side]["sampler"]["seed"] for side in "ab"] == [5, 6]
    shorter = place.run(*WORDS, "--steps", "7", "--record", "d.lir", "Once upon")
    assert len(shorter.lines) == 10
    ended = place.run("diff", "a.lir", "d.lir", code=1).out.decode()
    assert "B ends after 7 steps, the other goes on for 5 more" in ended


# The page ----------------------------------------------------------------------------------------


def test_the_page_in_a_real_browser(place: Place, tmp_path: Path) -> None:
    live = place.run(*WORDS, "--record", "a.lir", "Once upon")
    place.run("export", "a.lir", "--to", "html", "--out", "a.html")
    steps = [line for line in live.lines if line["event"] == "step"]
    prompt = next(line for line in live.lines if line["event"] == "prompt")
    first = len(prompt["tokens"])
    with Browser() as browser:
        browser.open(f"file://{place.cwd}/a.html")
        assert browser.value("document.querySelectorAll('#tokens b').length") == first + 12
        assert "Point at a token" in browser.value("document.getElementById('detail').innerText")
        assert browser.value("document.querySelectorAll('svg circle.one').length") == 11
        browser.point_at(f'b[data-n="{first + 4}"]')
        detail = browser.value("document.getElementById('detail').innerText")
        assert detail.startswith("Step 4")
        rows = browser.value(
            "[...document.querySelectorAll('#detail tr')].slice(1).map(r => r.innerText)"
        )
        assert len(rows) == len(steps[4]["candidates"]) == 20
        for row, candidate in zip(rows, steps[4]["candidates"], strict=True):
            assert f"{candidate['prob'] * 100:.1f} %" in row or candidate["prob"] < 0.0006
        chosen = browser.value("document.querySelector('#detail tr.chosen').innerText")
        assert chosen.startswith("●")
        # A click keeps it, arrows go on, another shade changes classes.
        browser.click(f'b[data-n="{first + 4}"]')
        browser.press("ArrowRight")
        assert browser.value("document.querySelector('#detail h3').innerText") == "Step 5"
        before = browser.value(f"document.querySelector('b[data-n=\"{first + 3}\"]').className")
        browser.click("button[data-mode=rank]")
        after = browser.value(f"document.querySelector('b[data-n=\"{first + 3}\"]').className")
        level = 0 if steps[3]["chosen"]["rank"] == 1 else None
        assert before.startswith("h")
        assert level is None or after.startswith("h0")
        assert browser.console == []
        browser.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_hostile_texts_do_nothing_in_a_real_browser(place: Place) -> None:
    samples(place.cwd)
    page = place.run("export", "hostile.lir", "--to", "html").out
    # What no text of a token can bring about, an editor of the file could try: it does not run.
    injected = page.replace(b"<footer>", b"<script>document.title = 'run'</script><footer>")
    (place.cwd / "a.html").write_bytes(injected)
    with Browser() as browser:
        browser.open(f"file://{place.cwd}/a.html#2")
        assert browser.value("document.title").endswith("llm-inspect")
        assert browser.value("document.querySelectorAll('img').length") == 0
        shown = browser.value("[...document.querySelectorAll('#tokens b')].map(b => b.textContent)")
        assert shown[1] == HOSTILE[0].decode()
        assert shown[3] == "␛]52;c;aGk=␇"
        assert browser.value("document.querySelector('#detail h3').innerText") == "Step 2"
        listed = browser.value("document.querySelector('#detail table').textContent")
        assert "</script><script>alert(1)</script>" in listed
        assert len(browser.console) == 1  # the injected script, refused
        assert "Content Security Policy" in browser.console[0]


def test_nothing_of_a_page_is_loaded_from_anywhere(place: Place) -> None:
    samples(place.cwd)
    page = place.run("export", "whole.lir", "--to", "html").out.decode()
    assert not [word for word in ("http:", "https:", "url(", "@import", " src=") if word in page]
