"""NEXT TOKEN: what is said of candidates."""

import math

import msgspec
import pytest

from engine_daemon.protocol.codec import pack_event, unpack_event
from engine_daemon.protocol.events import Predicted, SamplerSet, Stepped
from engine_daemon.protocol.values import DroppedBy, Sampler
from tests.tui.pilot import rows, screen
from tests.tui.story import FIRST, Story, paused


async def test_what_was_dropped_is_named_on_each_row() -> None:
    async with screen() as (_, app, _source):
        shown = rows(app, "next-token")[2:22]
        assert "100.0 %" in shown[0]
        listed = [row for row in shown if row[1:4].strip().isdigit()]
        assert len(listed) > 10
        assert all(" 0 greedy" in row for row in listed[1:])
        assert "0.0 %" not in "\n".join(row for row in shown).replace("100.0 %", "")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (260, 50)])
async def test_what_is_not_listed_has_one_name(size: tuple[int, int]) -> None:
    async with screen(size=size) as (_, app, _source):
        assert "… the rest" in "\n".join(rows(app, "next-token"))


def figures(shown: list[str]) -> tuple[list[float], float]:
    """The raw column: of the rows with a token, and of the rest."""
    place = shown[1].index("raw p" if "raw p" in shown[1] else "log") + 5
    rest = next(row for row in shown if "the rest" in row)
    listed = [row for row in shown[2 : shown.index(rest)] if row[1:4].strip().isdigit()]
    numbers = [float(row[place - 8 : place].replace("%", "")) for row in (*listed, rest)]
    return numbers[:-1], numbers[-1]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (120, 60), (260, 50)])
@pytest.mark.parametrize("keys", ["", "down down down down down down down down down down"])
async def test_what_is_listed_and_the_rest_make_the_whole_in_each_unit(
    size: tuple[int, int], keys: str
) -> None:
    """Whatever there is room for, and however far one went down the list."""
    async with screen(size=size) as (pilot, app, _source):
        app.main.query_one("#next-token").focus()
        await pilot.press(*keys.split())
        listed, rest = figures(rows(app, "next-token"))
        assert sum(listed) + rest == pytest.approx(100, abs=0.1 * len(listed))
        await pilot.press("u")
        listed, rest = figures(rows(app, "next-token"))
        assert sum(map(math.exp, (*listed, rest))) == pytest.approx(1, abs=0.01)
        await pilot.press("u")
        listed, rest = figures(rows(app, "next-token"))
        detail = app.view.shown
        assert detail is not None
        whole = math.exp(detail.predicted.logsumexp)
        assert sum(map(math.exp, (*listed, rest))) == pytest.approx(whole, rel=0.01)


async def test_a_chosen_token_that_is_no_candidate_counts_as_listed() -> None:
    story = Story().predict().pick(40_000, b" far", 0.125, how="forced", rank=99).predict().stop()
    async with screen(story) as (pilot, app, _source):
        await pilot.press("S")
        shown = rows(app, "next-token")
        (pinned,) = [row for row in shown if "far" in row]
        assert " 12.5 % " in pinned
        listed, rest = figures(shown)
        assert sum(listed) + rest == pytest.approx(100, abs=1)


async def test_a_tall_terminal_says_how_to_see_more_candidates() -> None:
    async with screen(size=(120, 60)) as (_, app, _source):
        shown = "\n".join(rows(app, "next-token"))
        assert "20 candidates (--candidates K for more)" in shown
    async with screen(size=(80, 24)) as (_, app, _source):
        assert "for more" not in "\n".join(rows(app, "next-token"))


async def test_the_sampler_is_on_the_screen() -> None:
    async with screen() as (_, app, _source):
        rows(app, "next-token")
        assert str(app.main.query_one("#next-token").border_title).endswith("pending · greedy")


async def test_a_long_sampler_finds_room_below() -> None:
    story = paused()
    sampler = Sampler(greedy=False, temperature=0.8, top_p=0.9, seed=9_876_543_210_987)
    story.add(SamplerSet(t_ns=1, wall_ns=1, step=3, sampler=sampler))
    async with screen(story, size=(80, 24)) as (_, app, _source):
        rows(app, "next-token")
        pane = app.main.query_one("#next-token")
        assert str(pane.border_title) == "NEXT TOKEN · step 3 pending"
        assert str(pane.border_subtitle) == "T 0.8 top-p 0.9 seed 98765432…"


async def test_candidates_units_and_paging() -> None:
    async with screen() as (pilot, app, _source):
        await pilot.press("tab", "u")
        assert "log p" in rows(app, "next-token")[1]
        await pilot.press("u")
        assert "logit" in rows(app, "next-token")[1]
        await pilot.press("u", "pagedown")
        assert "▸" not in rows(app, "next-token")[2]
        await pilot.press("pageup", "k", "up")
        assert rows(app, "next-token")[2].startswith("▸  1")


@pytest.mark.parametrize(
    ("dropped", "words"),
    [(DroppedBy.TOP_P, "0 top-p"), (DroppedBy.TOP_K, "0 top-k"), (DroppedBy.MIN_P, "0 min-p")],
)
async def test_filters_are_called_as_everywhere_on_screen(dropped: DroppedBy, words: str) -> None:
    story = Story().predict()
    packed = unpack_event(story.log[-1])
    assert isinstance(packed, Predicted)
    by = bytes(dropped if one else 0 for one in packed.candidates.dropped_by)
    named = msgspec.structs.replace(packed.candidates, dropped_by=by)
    story.add(msgspec.structs.replace(packed, candidates=named))
    async with screen(story.stop()) as (_, app, _source):
        assert words in "\n".join(rows(app, "next-token"))


async def test_where_a_draw_fell() -> None:
    story = Story().predict(sampled=True).pick(FIRST[0][0], FIRST[0][1], 0.2, how="sampled")
    picked = unpack_event(story.log[-1])
    assert isinstance(picked, Stepped)
    told = msgspec.structs.replace(picked, draw=0.4131, before=0.375, final_logprob=math.log(0.125))
    story.log[-1] = pack_event(told)
    story.predict().stop()
    async with screen(story) as (pilot, app, _source):
        await pilot.press("S")
        assert "sampled · u 0.4131 in 0.375-0.500" in "\n".join(rows(app, "next-token"))
    async with screen(story, size=(80, 24)) as (pilot, app, _source):
        await pilot.press("S")
        assert "u 0.4131" in "\n".join(rows(app, "next-token"))
