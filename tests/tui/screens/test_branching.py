"""Keys at a recorded step: what they send, and what the screen shows of branches and reads."""

import math

import pytest
from textual.widgets import Input, OptionList

from engine_daemon.protocol.commands import (
    Answer,
    At,
    Force,
    ForceText,
    Recompute,
    Resample,
    SetSampler,
    Switch,
)
from engine_daemon.protocol.reads import AskReroll, AskWhatIf
from engine_daemon.protocol.values import StepFigures, TokenFigure
from tests.tui.pilot import rows, said, screen, until
from tests.tui.source import FakeSource
from tests.tui.story import FIRST, SESSION, candidates, paused
from tui.keymap import in_scope
from tui.screens.branches import Beside, BranchesScreen
from tui.screens.force_text import ForceTextScreen
from tui.screens.keys import KeysBar
from tui.screens.sampler import SamplerScreen

HERE = At(branch=0, step=3)


async def test_enter_on_a_recorded_step_opens_a_branch_and_follows_it() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("S", "S", "tab", "down")
        await until(pilot, lambda: "a branch with it" in rows(app, "next-token")[-1])
        assert app.view.recorded_step == 1
        await pilot.press("enter")
        await until(pilot, lambda: app.view.columns.branch == 1)
        assert source.sent == [(Force(id=2, step=1), SESSION, HERE)]
        await until(pilot, lambda: "branch 1 (2 branches)" in rows(app, "status")[0])
        text = " ".join(rows(app, "sequence"))
        assert "Ku" in text
        assert "forced" in text
        assert text.count("bernetes") == 1, "that of the prompt"
        assert app.view.cursor is None
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: app.view.columns.branch == 0)
        assert source.sent[-1] == (Switch(branch=0), SESSION, At(branch=1, step=2))
        await until(pilot, lambda: " ".join(rows(app, "sequence")).count("bernetes") == 2)
        assert "step 3 pending" in str(app.main.query_one("#next-token").border_title)
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: app.view.columns.branch == 1)


async def test_enter_on_the_token_that_is_there_already_makes_no_branch_of_the_same() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("S", "S", "tab", "enter")
        await until(pilot, lambda: "step 1 has this token already" in said(app))
        assert "enter on another one opens a branch" in said(app)
        assert (app.view.at, source.sent) == (1, [])
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.view.columns.branch == 1)


async def test_resampling_under_the_cursor() -> None:
    async with screen() as (pilot, _app, source):
        await pilot.press("S", "r")
        await until(pilot, lambda: bool(source.sent))
        await pilot.press("G", "r")
        await until(pilot, lambda: len(source.sent) == 2)
        assert [do for do, _, _ in source.sent] == [Resample(step=2), Resample()]


async def test_the_sampler_of_a_recorded_step() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("S", "p")
        await until(pilot, lambda: isinstance(app.screen, SamplerScreen))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: bool(source.sent))
        do = source.sent[0][0]
        assert isinstance(do, SetSampler)
        assert do.step == 2


@pytest.mark.parametrize("key", ["left_square_bracket", "right_square_bracket"])
async def test_there_is_no_other_branch_at_first(key: str) -> None:
    async with screen() as (pilot, app, source):
        await pilot.press(key)
        await until(pilot, lambda: "no other branch" in said(app))
        assert source.sent == []
        assert "branch" not in rows(app, "status")[0]


async def test_a_typed_text_is_forced_as_its_ids() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("i")
        await until(pilot, lambda: isinstance(app.screen, ForceTextScreen))
        app.screen.query_one(Input).value = " two words"
        await pilot.press("enter")
        await until(pilot, lambda: bool(source.sent))
        do = source.sent[0][0]
        assert isinstance(do, ForceText)
        ids = [t.id for t in source.story._prompt_set().tokens() if not t.added]
        assert (do.ids, do.step) == (ids, None)
        await pilot.press("i", "x", "escape")
        await until(pilot, lambda: app.screen is app.main)
        assert len(source.sent) == 1


async def test_the_table_of_branches() -> None:
    story = paused().command("force").branch(1).pick(9, b" API", 0.1, how="forced").predict().stop()
    async with screen(story) as (pilot, app, source):
        await until(pilot, lambda: app.view.columns.branch == 1)
        await pilot.press("B")
        await until(pilot, lambda: isinstance(app.screen, BranchesScreen))
        table = app.screen
        assert isinstance(table, BranchesScreen)
        first, second = (table.row(one) for one in app.view.columns.branches())
        assert "the prompt" in first
        assert "3 steps" in first
        assert "leaves 0 at step 1" in second
        assert "1 token forced: API" in second
        assert "logprob -2.30\n" in second
        assert table.query_one(OptionList).highlighted == 1
        shown = "\n".join(table.query_one(Beside).lines(76))
        assert "They first differ at step 1, after Kubernetes pods are scheduled by the Ku" in shown
        assert "branch 1:  ␣API  10.0 %" in shown
        assert "branch 0:  bern  61.0 %" in shown
        await pilot.press("up", "enter")
        await until(pilot, lambda: bool(source.sent))
        assert source.sent[0][0] == Switch(branch=0)
        await until(pilot, lambda: app.view.columns.branch == 0)
        await pilot.press("B")
        await until(pilot, lambda: isinstance(app.screen, BranchesScreen))
        await pilot.press("enter")
        await until(pilot, lambda: said(app) == "already on branch 0")
        assert len(source.sent) == 1


async def test_what_is_compared_is_as_high_as_its_lines_in_any_width() -> None:
    story = paused().command("force").branch(1).pick(9, b" API", 0.1, how="forced").predict().stop()
    async with screen(story, size=(100, 30)) as (pilot, app, _):
        await until(pilot, lambda: app.view.columns.branch == 1)
        await pilot.press("B")
        await until(pilot, lambda: isinstance(app.screen, BranchesScreen))
        beside = app.screen.query_one(Beside)
        for columns, rows in ((60, 16), (100, 30), (80, 24)):
            await pilot.resize_terminal(columns, rows)
            for _ in range(5):
                await pilot.pause()
            assert app.screen.size == (columns, rows)
            assert beside.size.height == len(beside.lines(beside.size.width))
            assert app.screen.query_one(KeysBar).region.bottom < rows


def figure(token_id: int, piece: bytes, final: float, count: int | None = None) -> TokenFigure:
    return TokenFigure(
        id=token_id,
        piece=piece,
        special=False,
        logit=1.0,
        logprob=-1.0,
        final_logprob=math.log(final),
        rank=1,
        count=count,
    )


async def test_what_another_sampler_would_do_is_shown_beside_and_forgotten() -> None:
    source = FakeSource(paused())
    packed = candidates([(2, b"be", 0.9), (1, b"bern", 0.1)])
    source.answer = Answer(
        figures=StepFigures(
            candidates=packed,
            ties_cut=False,
            entropy_bits=1.0,
            logsumexp=0.0,
            margin=0.1,
            tail_prob=0.0,
            picked=figure(2, b"be", 0.9),
            draw=0.25,
        )
    )
    async with screen(source=source) as (pilot, app, _):
        await pilot.press("S", "S", "w")
        await until(pilot, lambda: isinstance(app.screen, SamplerScreen))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.view.shown_overlay is not None)
        ask = source.asked[-1]
        assert isinstance(ask, AskWhatIf)
        assert (ask.branch, ask.step) == (0, 1)
        shown = rows(app, "next-token")
        assert "what if" in shown[1]
        assert "would pick be, id 2 (u 0.2500)" in shown[-1]
        await pilot.press("S")
        assert "final" in rows(app, "next-token")[1]
        await pilot.press("s", "escape")
        assert "final" in rows(app, "next-token")[1]
        assert source.sent == []


async def test_re_rolls_are_counted() -> None:
    source = FakeSource(paused())
    source.answer = Answer(tokens=[figure(1, b"bern", 0.6, 31), figure(2, b"be", 0.4, 19)])
    async with screen(source=source) as (pilot, app, _):
        await pilot.press("S", "S", "5", "0", "R")
        await until(pilot, lambda: app.view.shown_overlay is not None)
        ask = source.asked[-1]
        assert isinstance(ask, AskReroll)
        assert (ask.n, ask.step) == (50, 1)
        shown = rows(app, "next-token")
        assert "of 50" in shown[1]
        assert any("bern" in row and " 31" in row for row in shown)
        assert "bern 31 (expected 30), be 19 (20) · esc back" in shown[-1]


@pytest.mark.parametrize(
    ("pane", "key", "words"),
    [
        ("cache", "R", "bern 31 (expected 30) · NEXT TOKEN shows it: z shows all panes"),
        ("next-token", "R", ""),
        ("cache", "N", "without cache are measured · COST PER STEP shows it: z shows all panes"),
        ("cost", "N", ""),
    ],
)
async def test_what_a_hidden_pane_shows_is_told_of(pane: str, key: str, words: str) -> None:
    """Or a key would seem to do nothing."""
    source = FakeSource(paused())
    source.answer = Answer(tokens=[figure(1, b"bern", 0.6, 31), figure(2, b"be", 0.4, 19)])
    async with screen(source=source, size=(160, 40)) as (pilot, app, _):
        app.main.query_one(f"#{pane}").focus()
        await pilot.press("z")
        await until(pilot, lambda: app.main.maximized is not None)
        await pilot.press("5", "0", key)
        await until(pilot, lambda: app.view.overlay is not None or bool(source.sent))
        await until(pilot, lambda: said(app).endswith(words) if words else not said(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.main.maximized is None)
        await pilot.press("5", "0", key)
        await until(pilot, lambda: said(app) == "")


async def test_draws_on_tokens_that_are_not_listed_are_counted() -> None:
    source = FakeSource(paused())
    source.answer = Answer(
        tokens=[
            figure(FIRST[0][0], FIRST[0][1], 0.05, 2),
            *(figure(90_000 + k, b" far", 1e-5, 2) for k in range(19)),
        ]
    )
    async with screen(source=source) as (pilot, app, _):
        await pilot.press("g", "4", "0", "R")
        await until(pilot, lambda: app.view.shown_overlay is not None)
        rest = next(row for row in rows(app, "next-token") if "the rest" in row)
        assert " 38 " in rest
        assert "␣Ku 2 (expected 2.0), ␣far 2 (<0.1) · esc back" in rows(app, "next-token")[-1]


@pytest.mark.parametrize(
    ("size", "note"),
    [
        (
            (260, 50),
            "1000 draws, came (expected): ␣on 344 (351), ␣at 322 (310), ␣abcdefghij… 1 (2.0)",
        ),
        ((160, 40), "␣on 344 (expected 351), ␣at 322 (310) · esc back"),
        ((120, 40), "␣on 344 (expected 351) · esc back"),
        ((80, 24), "␣on 344 (expected 351) · esc back"),
    ],
)
async def test_what_was_expected_of_the_draws_is_told_in_whole_entries(
    size: tuple[int, int], note: str
) -> None:
    source = FakeSource(paused())
    long = b" abcdefghijklmnop"
    source.answer = Answer(
        tokens=[
            figure(1, b" on", 0.351, 344),
            figure(2, b" at", 0.31, 322),
            figure(3, long, 0.002, 1),
        ]
    )
    async with screen(source=source, size=size) as (pilot, app, _):
        await pilot.press("R")
        await until(pilot, lambda: "of 1000" in rows(app, "next-token")[1])
        shown = "\n".join(rows(app, "next-token"))
        assert note in shown
        assert "esc back" in shown


@pytest.mark.parametrize(("back", "step"), [(0, 3), (2, 1)])
async def test_a_row_that_is_gone_is_computed_again_by_the_key_that_is_named(
    back: int, step: int
) -> None:
    async with screen() as (pilot, app, source):
        await pilot.press(*["S"] * back, "R")
        await until(pilot, lambda: f"step {step} are not held any more" in said(app))
        (action,) = [action for action in in_scope("main") if action.name == "recompute"]
        assert action.palette
        assert f"{action.keys[0]} computes them again" in said(app)
        await pilot.press(action.keys[0])
        await until(pilot, lambda: bool(source.sent))
        assert source.sent == [(Recompute(step=step, branch=0), SESSION, At(branch=0, step=3))]
        await until(pilot, lambda: f"step {step} is computed again" in said(app))


async def test_counts_of_another_sampler_are_not_left_beside_the_candidates() -> None:
    source = FakeSource(paused())
    source.answer = Answer(tokens=[figure(1, b"bern", 0.6, 31), figure(2, b"be", 0.4, 19)])
    async with screen(source=source) as (pilot, app, _):
        await pilot.press("5", "0", "R")
        await until(pilot, lambda: "of 50" in rows(app, "next-token")[1])
        await pilot.press("p")
        await until(pilot, lambda: isinstance(app.screen, SamplerScreen))
        app.screen.query_one("#field-temperature", Input).value = "0.7"
        await pilot.press("enter")
        await until(pilot, lambda: app.view.columns.sampler.temperature == 0.7)
        shown = rows(app, "next-token")
        assert "final" in shown[1]
        assert "expected" not in "\n".join(shown)
        await pilot.press("5", "0", "R")
        await until(pilot, lambda: "of 50" in rows(app, "next-token")[1])
