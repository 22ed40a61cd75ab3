"""A replay: keys move through time, nothing reaches an engine, and a file may grow meanwhile."""

import os
import re
from pathlib import Path

import pytest

from engine_daemon.errors import InspectError
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.commands import RunTo
from engine_daemon.protocol.events import Closed, NaiveMeasured, Predicted, Stepped
from engine_daemon.protocol.reads import AskEncode, AskEvents
from engine_daemon.protocol.values import PromptSpec
from engine_daemon.recording.reader import Recording
from tests.tui.pilot import Screen, keys, rows, said, until
from tests.tui.recordings import replay, replay_app, write
from tests.tui.story import SESSION, Story
from tui.commands import ActionProvider
from tui.replay import ReplayApp
from tui.replay_actions import NEEDS_ENGINE
from tui.screens.branches import Beside, BranchesScreen

WORDS = [b" one", b" two", b" three", b" four", b" five", b" six"]


def told(*words: bytes, ms: float = 13.0, close: bool = True) -> Story:
    """A session that picked these words and is over."""
    story = Story(pause=False).predict()
    story.tokens(*((word, 0.6) for word in words or WORDS), ms=ms)
    story.predict().stop("pause")
    if close:
        story.add(Closed(t_ns=9, wall_ns=9, count=len(story.log), by="user"))
    return story


def status(app: ReplayApp) -> str:
    return rows(app, "status")[0]


def text(app: ReplayApp) -> str:
    return "\n".join(row.rstrip() for row in rows(app, "sequence")).strip()


async def at(pilot: Screen, app: ReplayApp, step: int) -> None:
    await until(pilot, lambda: app.view.at == step)


async def test_it_begins_at_the_first_step_and_shows_nothing_of_the_future(tmp_path: Path) -> None:
    async with replay(tmp_path / "a.lir", told()) as (_, app):
        assert "▶ REPLAY" in status(app)
        assert "paused 1× step 0 of 6" in status(app)
        assert text(app).endswith("␣one")
        assert "two" not in "".join(rows(app, "tokens"))
        assert "step 0" in str(app.main.query_one("#next-token").border_title)


async def test_step_on_back_and_seek(tmp_path: Path) -> None:
    async with replay(tmp_path / "a.lir", told()) as (pilot, app):
        await pilot.press("s")
        assert text(app).endswith("␣one␣two")
        await pilot.press("3", "s")
        assert app.view.at == 4
        await pilot.press("S", "S")
        assert text(app).endswith("␣one␣two␣three")
        await pilot.press("5", "G")
        assert app.view.at == 5
        await pilot.press("g")
        assert app.view.at == 0
        await pilot.press("G")
        assert app.view.at == 6
        assert app.view.on_pending
        await pilot.press("s")
        assert "this is where the recording ends" in said(app)
        await pilot.press("9", "9", "G", "right", "left")
        assert app.view.at == 5


async def test_every_steps_numbers_are_there_at_once(tmp_path: Path) -> None:
    async with replay(tmp_path / "a.lir", told()) as (pilot, app):
        for step in (4, 1, 5, 0):
            await pilot.press(*str(step), "G") if step else await pilot.press("g")
            shown = app.view.shown
            assert shown is not None
            assert shown.step == step
            assert shown.stepped is not None
            assert shown.stepped.piece == WORDS[step]


async def test_it_plays_to_the_end_and_begins_again(tmp_path: Path) -> None:
    async with replay(tmp_path / "a.lir", told(ms=4000.0)) as (pilot, app):
        replay_ = app.view.replay
        assert replay_ is not None
        await pilot.press(*[">"] * 8, "space")
        await until(pilot, lambda: not replay_.playing)
        assert app.view.at == 6
        assert "paused" in status(app)
        await pilot.press(*["<"] * 20, "space")
        assert app.view.at < 6
        assert "playing 0.125×" in status(app)
        await pilot.press("ctrl+c")
        assert "paused 0.125×" in status(app)
        await pilot.press("ctrl+c")
        assert "q leaves the replay" in said(app)


async def test_a_slow_step_is_waited_for_and_speed_shortens_it(tmp_path: Path) -> None:
    async with replay(tmp_path / "a.lir", told(ms=30_000.0)) as (pilot, app):
        await pilot.press("space")
        await pilot.pause(0.2)
        assert app.view.at == 0
        assert "playing 1×" in status(app)
        await pilot.press(*[">"] * 8)
        assert "playing 256×" in status(app)
        await at(pilot, app, 1)
        await pilot.press("s")
        assert "paused" in status(app)


async def test_the_future_can_be_shown(tmp_path: Path) -> None:
    async with replay(tmp_path / "a.lir", told()) as (pilot, app):
        await pilot.press("F")
        assert text(app).endswith("␣six")
        assert app.view.at == 0
        await pilot.press("F")
        assert text(app).endswith("␣one")


@pytest.mark.parametrize(
    "key", ["p", "r", "i", "w", "R", "N", "W", "b", "t", "m", "L", "E", "ctrl+n", "enter"]
)
async def test_what_needs_an_engine_says_why_not(tmp_path: Path, key: str) -> None:
    async with replay(tmp_path / "a.lir", told()) as (pilot, app):
        before = (tmp_path / "a.lir").read_bytes()
        await pilot.press(key)
        assert "a replay has no engine" in said(app)
        assert f"llm-inspect open {tmp_path}/a.lir goes on from here" in said(app)
        assert app.screen is app.main
        assert (tmp_path / "a.lir").read_bytes() == before


async def test_one_branch_is_said_with_why_there_is_no_other(tmp_path: Path) -> None:
    async with replay(tmp_path / "a.lir", told()) as (pilot, app):
        await pilot.press("B")
        await until(pilot, lambda: isinstance(app.screen, BranchesScreen))
        words = " ".join(app.screen.query_one(Beside).lines(76))
        assert words.startswith("One branch: a replay has no engine · llm-inspect open")
        assert "opens one" not in words
        assert "goes on from here" in words
        await pilot.press("enter")
        await until(pilot, lambda: said(app) == "already on branch 0")


async def test_forcing_a_candidate_too(tmp_path: Path) -> None:
    async with replay(tmp_path / "a.lir", told()) as (pilot, app):
        await pilot.press("G", "tab")
        app.main.query_one("#next-token").focus()
        await pilot.press("down", "enter")
        assert len(app.view.columns) == 6


async def test_keys_help_and_palette_are_the_replays(tmp_path: Path) -> None:
    async with replay(tmp_path / "a.lir", told()) as (pilot, app):
        assert keys(app).startswith("space play/pause s step on S back > faster")
        for word in ("sampler", "force", "new prompt", "breakpoint"):
            assert word not in keys(app)
        await pilot.press("question_mark")
        shown = "\n".join(str(one.render()) for one in app.screen.query("Static"))
        assert shown.index("In a replay") < shown.index("Everywhere")
        assert "not here: At the pending step: draw by another random number" in shown
        assert "Run the session, or pause it" not in shown
        await pilot.press("escape")
        names = [action for _, action, _ in ActionProvider(app.screen)._entries()]
        assert len(names) == len(set(names))
        assert not {f"main.{name}" for name in names} & NEEDS_ENGINE
        assert {"faster", "unveil", "run_or_pause"} <= set(names)


# Branches, marks ---------------------------------------------------------------------------------


def forked() -> Story:
    story = told(close=False).command("force").branch(2)
    story.predict().tokens((b" other", 0.2), (b" way", 0.7))
    return story.predict().stop("pause")


async def test_branches_are_paths_of_their_own(tmp_path: Path) -> None:
    async with replay(tmp_path / "a.lir", forked()) as (pilot, app):
        assert "branch 1 (2 branches)" in status(app)
        await pilot.press("G")
        assert text(app).endswith("␣one␣two␣other␣way▏")
        await pilot.press("]")
        assert "branch 0 (2 branches)" in status(app)
        await pilot.press("G")
        assert text(app).endswith("␣six▏")
        await pilot.press("B", "down", "enter")
        assert "branch 1 (2 branches)" in status(app)
        assert app.view.at == 2
        await pilot.press("g", "}")
        assert app.view.at == 2
        assert "step 2: branch 1 leaves 0" in said(app)
        await pilot.press("}")
        assert "no condition, note or branch after this step" in said(app)


# A file that grows -------------------------------------------------------------------------------


async def test_a_growing_file_is_followed_at_its_end(tmp_path: Path) -> None:
    path, story = tmp_path / "a.lir", told(close=False)
    async with replay(path, story) as (pilot, app):
        assert app.view.at == 6
        have = len(story.log)
        story.command("run_to", None).tokens((b" seven", 0.5), (b" eight", 0.5)).predict().stop(
            "pause"
        )
        write(path, story.log, have)
        await at(pilot, app, 8)
        assert text(app).endswith("␣seven␣eight▏")
        await pilot.press("3", "G", "space")
        assert app.view.replay is not None
        assert app.view.replay.playing
        have = len(story.log)
        story.add(Closed(t_ns=9, wall_ns=9, count=have, by="user"))
        write(path, story.log, have)
        await until(pilot, lambda: app.view.replay is not None and not app.view.replay.growing)


async def test_one_that_nobody_closed_long_ago_is_over(tmp_path: Path) -> None:
    path = tmp_path / "a.lir"
    write(path, told(close=False).log)
    os.utime(path, (1e9, 1e9))
    async with replay(path) as (_, app):
        assert app.view.at == 0
        assert app.view.replay is not None
        assert not app.view.replay.growing


async def test_what_is_appended_belongs_to_the_branch_that_is_written(tmp_path: Path) -> None:
    path, story = tmp_path / "a.lir", forked()
    async with replay(path, story) as (pilot, app):
        await pilot.press("[", "1", "G")
        assert app.view.columns.branch == 0
        have = len(story.log)
        story.command("run_to", None).tokens((b" more", 0.5)).predict().stop("pause")
        write(path, story.log, have)
        await until(pilot, lambda: app.view.columns.next == len(story.log))
        assert (app.view.columns.branch, app.view.at) == (0, 1)
        assert app.view.columns.strays == 0
        await pilot.press("]", "G")
        assert text(app).startswith("Kubernetes")
        assert "␣more" in text(app)


async def test_a_hole_in_what_is_appended_is_named_not_waited_for(tmp_path: Path) -> None:
    path, story = tmp_path / "a.lir", told(close=False)
    async with replay(path, story) as (pilot, app):
        have = len(story.log)
        story.command("run_to", None).tokens((b" seven", 0.5), (b" eight", 0.5)).predict().stop(
            "pause"
        )
        write(path, story.log, have + 3)
        await until(pilot, lambda: app.view.columns.next == len(story.log))
        assert not app.view.columns.complete
        assert "DAMAGED" in status(app)


async def test_a_file_that_is_cut_meanwhile_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "a.lir"
    write(path, told(close=False).log)
    app = replay_app(path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.view.session is not None)
        path.write_bytes(path.read_bytes()[:1000])
        await until(pilot, lambda: app._exit)
    assert isinstance(app.return_value, InspectError)
    assert app.return_value.exit_code == 6


# The source --------------------------------------------------------------------------------------


async def test_the_source_answers_reads_of_events_and_refuses_the_rest(tmp_path: Path) -> None:
    path, story = tmp_path / "a.lir", told()
    write(path, story.log)
    source = replay_app(path)._recorded
    assert source.session == SESSION
    answer = await source.ask(AskEvents(seqs=[6, 10_000]))
    assert answer.ev == [(6, story.log[6])]
    for refused in (
        source.command(RunTo(step=None)),
        source.ask(AskEncode(prompt=PromptSpec(text=b"x"))),
    ):
        with pytest.raises(InspectError) as error:
            await refused
        assert error.value.code == "no_engine"
    assert source.state.engine.model is not None


async def test_a_recording_that_lost_its_beginning_is_shown_as_far_as_it_goes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.lir"
    write(path, told().log, 5)
    async with replay(path) as (pilot, app):
        assert "DAMAGED" in status(app)
        await pilot.press("2", "G")
        assert app.view.at == 2
    with Recording.open(path) as recording:
        assert isinstance(unpack_event(recording.event(6) or b""), Predicted)


async def test_costs_of_steps_that_are_still_to_come_are_not_drawn(tmp_path: Path) -> None:
    story = told(*(b" word" for _ in range(40)))
    story.add(NaiveMeasured(t_ns=1, wall_ns=1, length=40, ms=50.0))
    async with replay(tmp_path / "a.lir", story) as (pilot, app):

        def drawn() -> tuple[int, int]:
            plot = rows(app, "cost")[2:]
            return sum(row.count("•") for row in plot), sum(row.count("×") for row in plot)

        assert drawn() == (0, 0)
        await pilot.press("G")
        await until(pilot, lambda: drawn()[0] > 20 and drawn()[1] == 1)
        await pilot.press("9", "G")
        await until(pilot, lambda: 0 < drawn()[0] < 10 and drawn()[1] == 0)
        assert "no cache" not in rows(app, "cost")[0]
        await pilot.press("F")
        await until(pilot, lambda: drawn()[0] > 20 and drawn()[1] == 1)


@pytest.mark.parametrize("events", [3, 5, 6])
async def test_a_recording_that_ends_before_its_first_step_waits_for_nothing(
    tmp_path: Path, events: int
) -> None:
    """Cut before its prompt, or between the prompt and the first distribution."""
    path = tmp_path / "a.lir"
    write(path, told().log[:events])
    os.utime(path, (1e9, 1e9))
    async with replay(path) as (_pilot, app):
        shown = both(app)
        assert "– not recorded" in shown
        assert ("ends before its prompt" in shown) == (events < 6)
        assert "…" not in shown
        assert "not there yet" not in shown


async def test_what_nobody_writes_on_is_not_waited_for_long(tmp_path: Path) -> None:
    path = tmp_path / "a.lir"
    write(path, told().log[:3])
    async with replay(path) as (pilot, app):
        assert "The prompt is not in this recording yet" in both(app)
        os.utime(path, (1e9, 1e9))
        await until(pilot, lambda: "This recording ends before its prompt" in both(app))


def both(app: ReplayApp) -> str:
    """The text and the candidates, as they are on screen."""
    return "\n".join([*rows(app, "sequence"), *rows(app, "next-token")])


async def test_a_lost_token_leaves_a_mark_in_the_text(tmp_path: Path) -> None:
    """The words before and after it do not look like one text."""
    path, log = tmp_path / "a.lir", told().log
    picks = [k for k, packed in enumerate(log) if isinstance(unpack_event(packed), Stepped)]
    two, three = picks[1:3]
    write(path, log[: two + 1])
    write(path, log, three + 1)
    async with replay(path, size=(160, 40)) as (pilot, app):
        assert "DAMAGED" in status(app)
        await pilot.press("G")
        await at(pilot, app, 6)
        assert "two‹?›␣four" in "".join(rows(app, "sequence"))
        (row,) = [row for row in rows(app, "tokens") if "‹?›" in row]
        assert row.split() == ["2", "–", "‹?›", *"–––––"]
        assert app.view.text().endswith(" one two‹?› four five six".encode())


async def test_a_file_that_is_removed_meanwhile_is_told_and_shown_on(tmp_path: Path) -> None:
    async with replay(tmp_path / "a.lir", told()) as (pilot, app):
        (tmp_path / "a.lir").unlink()
        await until(pilot, lambda: "somebody removed this recording" in keys(app))
        await pilot.press("G")
        await at(pilot, app, 6)
        assert "removed" not in keys(app)  # said once


@pytest.mark.parametrize("columns", [80, 100, 120])
async def test_a_first_line_with_branches_keeps_what_there_is_room_for(
    tmp_path: Path, columns: int
) -> None:
    async with replay(tmp_path / "a.lir", forked(), size=(columns, 40)) as (pilot, app):
        await pilot.press("G")
        line = status(app)
        free = max(len(gap) for gap in re.findall(" +", line.rstrip()))
        assert "a.lir" in line or free <= len("a.lir · ")
        assert "of 0.0 s" in line or " s " in line or free <= len("0.0 of 0.0 s · ")
        assert "bf16" in line or free <= len(" · bf16 · cpu×1")
