"""What long prompts, scores, measured forwards, cache kinds and weights look like in the panes."""

import math
from typing import Any

import msgspec
import pytest

from engine_daemon.errors import InspectError
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.commands import (
    CHUNK,
    At,
    CheckWeights,
    MeasureNaive,
    Pause,
    RunTo,
)
from engine_daemon.protocol.events import (
    EngineStarted,
    NaiveMeasured,
    Predicted,
    Prefilled,
    PromptScored,
)
from engine_daemon.protocol.packing import pack_floats, pack_ints
from engine_daemon.protocol.state import WeightsCheck
from engine_daemon.protocol.values import CacheKind, Leading, Restored
from tests.tui.pilot import rows, said, screen, until
from tests.tui.source import FakeSource
from tests.tui.story import PROMPT, SESSION, Story, paused, state
from tui.panes.cache import CachePane
from tui.panes.cost import CostPane
from tui.text import token
from tui.widgets.plot import DERIVED, MARK, PAUSED

BASE: Any = {"t_ns": 1, "wall_ns": 1}


def naive(length: int, ms: float, left: int = 0) -> NaiveMeasured:
    return NaiveMeasured(**BASE, length=length, ms=ms, left=left)


def reading(story: Story, done: int = 512) -> Story:
    story.add(Prefilled(**BASE, done=done, total=4000, forward_ms=200.0))
    return story


def long_run(slope: float = 0.01) -> Story:
    story = Story().predict().stop().command("run_to", None)
    for step in range(60):
        ms = 10 + slope * (len(PROMPT) + step)
        story.predict([(5, b" a", 0.5)], ms=ms).pick(5, b" a", 0.5, total=ms)
    return story.predict().stop("pause")


async def test_the_place_in_a_long_prompt_is_shown_and_can_be_paused() -> None:
    async with screen(reading(Story())) as (pilot, app, source):
        assert "prefill 512 of 4000" in rows(app, "status")[0]
        assert "WAITING" in rows(app, "status")[0]
        await pilot.press("space")
        await until(pilot, lambda: bool(source.sent))
        assert source.sent[0][0] == Pause()


async def test_s_reads_the_next_chunk_and_a_count_so_many() -> None:
    story = reading(Story()).stop("pause", pending=False)
    async with screen(story) as (pilot, _app, source):
        await pilot.press("s")
        await until(pilot, lambda: bool(source.sent))
        assert source.sent[0] == (RunTo(step=0, read=513), SESSION, At(branch=0, step=0))
    async with screen(reading(Story()).stop("pause", pending=False)) as (pilot, _app, source):
        await pilot.press("3", "s")
        await until(pilot, lambda: bool(source.sent))
        assert source.sent[0][0] == RunTo(step=0, read=512 + 2 * CHUNK + 1)


async def test_scores_of_the_prompt_are_in_tokens_and_shade_the_text() -> None:
    story = Story()
    probs = [math.nan, 0.5, 0.004, *[0.9] * (len(PROMPT) - 3)]
    logprobs = [math.log(p) if p == p else p for p in probs]
    ranks = [0, 1, 412, *[1] * (len(PROMPT) - 3)]
    plain = Story().predict().stop()
    story.add(
        PromptScored(**BASE, logprobs=pack_floats("f", logprobs), ranks=pack_ints("I", ranks))
    )
    async with screen(story.predict().stop()) as (pilot, app, _source):
        await pilot.press("tab", "tab", "z")
        lines = rows(app, "tokens")
        assert "–" in lines[1]
        assert "50.0 %" in lines[2]
        assert "0.4 %" in lines[3]
        assert "412" in lines[3]
        pane = app.main.query_one("#sequence")
        scored = [part.style for part in pane.render_line(0)]
    async with screen(plain) as (_, app, _source):
        assert "%" not in "".join(rows(app, "tokens")[1:4])
        assert [part.style for part in app.main.query_one("#sequence").render_line(0)] != scored


async def test_measured_points_and_the_derived_curve_between_them() -> None:
    story = long_run()
    story.add(naive(8, 21.0, 1), naive(60, 62.0))
    async with screen(story, size=(160, 50)) as (_, app, _source):
        text = "\n".join(rows(app, "cost"))
        assert f"{MARK} no cache" in text
        assert f"{DERIVED} derived" in text
        plot = text.split("\n", 2)[2]
        assert plot.count(MARK) == 2
        assert plot.count(DERIVED) > 5
        assert PAUSED not in plot


async def test_one_point_has_no_curve() -> None:
    story = long_run()
    story.add(naive(40, 21.0))
    async with screen(story, size=(160, 50)) as (_, app, _source):
        text = "\n".join(rows(app, "cost"))
        assert f"{MARK} no cache" in text
        assert DERIVED not in text.split("\n", 2)[2]
        assert "derived:" in text


async def test_the_parts_of_the_cached_cost_are_fitted_without_prefill_and_pauses() -> None:
    story = Story().predict(ms=900).stop().command("run_to", None)
    for step in range(40):
        after_pause = step % 10 == 5
        ms = 40.0 if after_pause else 10 + 0.25 * (len(PROMPT) + step)
        story.predict([(5, b" a", 0.5)], ms=ms, after_pause=after_pause)
        story.pick(5, b" a", 0.5, total=ms)
    async with screen(story.predict().stop(), size=(160, 50)) as (_, app, _source):
        text = "\n".join(rows(app, "cost"))
        assert "derived: constant 10.0 ms, growing +250.00 ± 0.00 µs a token" in text
        assert "fit over 35 steps" in text
        assert f"{PAUSED} after a pause" in text
        pane = app.main.query_one("#cost", CostPane)
        assert pane._fit.slope == pytest.approx(0.25, abs=1e-4)


async def test_the_mode_without_the_naive_points() -> None:
    story = long_run()
    story.add(naive(8, 21.0), naive(60, 620.0))
    async with screen(story, size=(160, 50)) as (_, app, _source):
        pane = app.main.query_one("#cost", CostPane)
        pane.action_mode()
        text = "\n".join(rows(app, "cost"))
        assert "ms a cached step" in text
        assert MARK not in text


async def test_n_measures_here_and_a_count_so_many_lengths() -> None:
    async with screen(paused()) as (pilot, _app, source):
        await pilot.press("N")
        await until(pilot, lambda: bool(source.sent))
        assert source.sent[0] == (MeasureNaive(lengths=[11]), SESSION, None)
        await pilot.press("4", "N")
        await until(pilot, lambda: len(source.sent) == 2)
        assert source.sent[1][0] == MeasureNaive(lengths=[2, 5, 8, 11])


async def test_space_cancels_measurements() -> None:
    story = paused().command("measure_naive", 4)
    story.add(naive(4, 20.0, 3))
    async with screen(story) as (pilot, app, source):
        assert "3 to come" in "\n".join(rows(app, "cost"))
        await pilot.press("space")
        await until(pilot, lambda: bool(source.sent))
        assert source.sent[0][0] == Pause()


async def test_the_cache_by_kind_of_layer_and_the_device() -> None:
    story = Story().predict()
    packed = msgspec.msgpack.decode(story.log[-1], type=Predicted)
    kinds = [
        CacheKind(kind="full_attention", layers=16, bytes=65_536, growth="growing"),
        CacheKind(kind="recurrent", layers=48, bytes=2_097_152, growth="fixed"),
    ]
    cache = msgspec.structs.replace(
        packed.cache, kinds=kinds, device_used_bytes=2**30, device_total_bytes=2**33
    )
    story.add(msgspec.structs.replace(packed, cache=cache))
    async with screen(story.stop(), size=(160, 60)) as (_, app, _source):
        text = "\n".join(rows(app, "cache"))
        assert "full_attention×16" in text
        assert "66 kB growing" in text
        assert "2.1 MB fixed" in text
        assert "1.1 GB of 8.6 GB" in text


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (None, "–"),
        (WeightsCheck(checksum="a", same=True, wall_ns=10**18, ms=1.0), "frozen, checked"),
        (WeightsCheck(checksum="a", same=False, wall_ns=10**18, ms=1.0), "CHANGED, checked"),
        (
            WeightsCheck(checksum="a", same=True, wall_ns=1, ms=1.0, running=True),
            "being checked",
        ),
    ],
)
async def test_frozen_is_a_checked_fact(check: WeightsCheck | None, words: str) -> None:
    source = FakeSource(paused(), first=state(weights=check))
    async with screen(source=source, size=(160, 60)) as (pilot, app, _source):
        (line,) = [line for line in rows(app, "cache") if line.startswith("weights")]
        assert words in line
        await pilot.press("W")
        await until(pilot, lambda: bool(source.sent))
        assert source.sent[0][0] == CheckWeights()
        assert "weights in memory are summed" in said(app)


async def test_weights_that_are_not_there_are_not_said_to_be_summed() -> None:
    source = FakeSource(paused())
    source.refuse = InspectError("this engine has no weights in memory to check")
    async with screen(source=source) as (pilot, app, _source):
        await pilot.press("W")
        await until(pilot, lambda: "no weights" in said(app))
        assert "are summed" not in said(app)


async def test_a_cache_pane_that_is_too_small_says_what_is_missing() -> None:
    story = Story().predict()
    packed = msgspec.msgpack.decode(story.log[-1], type=Predicted)
    cache = msgspec.structs.replace(packed.cache, parked_bytes=1, snapshot_bytes=2, rows_bytes=3)
    cache = msgspec.structs.replace(cache, device_used_bytes=1, device_total_bytes=2)
    story.add(msgspec.structs.replace(packed, cache=cache))
    story.stop()
    async with screen(story) as (pilot, app, _source):
        shown = rows(app, "cache")
        below = str(app.main.query_one("#cache", CachePane).border_subtitle)
        assert f"{len(shown)} of " in below
        assert "z shows all" in below
        app.main.query_one("#cache", CachePane).focus()
        await pilot.press("z")
        assert any(line.startswith("mode") for line in rows(app, "cache"))
        assert not app.main.query_one("#cache", CachePane).border_subtitle


async def test_a_distribution_that_came_back_otherwise_says_who_led_before() -> None:
    story = Story().predict()
    packed = msgspec.msgpack.decode(story.log[-1], type=Predicted)
    second = packed.candidates.rows()[1]
    for led, words in (
        (Leading(id=second.id, margin=0.03), f"{token(second.piece)} led by 3.0 %"),
        (Leading(id=77_777, margin=0.0), "id 77777 led by 0.0 %"),
    ):
        back = Restored(method="prefill", replayed=68, ms=123.0, diverged=led)
        story.add(msgspec.structs.replace(packed, restored=back))
        async with screen(story.stop(), size=(200, 50)) as (pilot, app, _source):
            app.main.query_one("#cache", CachePane).focus()
            await pilot.press("z")
            (line,) = [line for line in rows(app, "cache") if line.startswith("diverged")]
            assert words in line


async def test_what_an_earlier_start_of_the_engine_held_is_not_in_memory() -> None:
    story = Story().predict().pick(5, b" a", 0.5).predict().stop()
    started = next(e for e in map(unpack_event, story.log) if isinstance(e, EngineStarted))
    story.add(msgspec.structs.replace(started, engine=2))
    story.branch(0).stop()
    async with screen(story) as (_, app, _source):
        assert "not in memory" not in "".join(rows(app, "cache"))
    story.switch(0)
    async with screen(story) as (_, app, _source):
        assert "not in memory" in "".join(rows(app, "cache"))


async def test_the_usual_cache_fits_with_the_weights_among_its_rows() -> None:
    story = Story().predict()
    packed = msgspec.msgpack.decode(story.log[-1], type=Predicted)
    cache = msgspec.structs.replace(packed.cache, parked_bytes=0, snapshot_bytes=0, rows_bytes=3)
    back = Restored(method="prefill", replayed=68, ms=123.0)
    story.add(msgspec.structs.replace(packed, cache=cache, restored=back))
    check = WeightsCheck(checksum="a", same=True, wall_ns=10**18, ms=1.0)
    source = FakeSource(story.stop(), first=state(weights=check))
    async with screen(source=source, size=(120, 40)) as (_, app, _source):
        shown = rows(app, "cache")
        assert len(shown) == 10
        assert not app.main.query_one("#cache", CachePane).border_subtitle
        (weights,) = [line for line in shown if line.startswith("weights")]
        assert "frozen" in weights
        (restored,) = [line for line in shown if line.startswith("restored by")]
        assert "prefill" in restored
        assert not any(word in "".join(shown) for word in ("fixed", "parked", "snapshots"))


async def test_the_cache_bar_is_of_the_limit() -> None:
    story = Story().predict()
    packed = msgspec.msgpack.decode(story.log[-1], type=Predicted)
    cache = msgspec.structs.replace(
        packed.cache, tokens=4096, capacity_tokens=4100, limit_tokens=8192
    )
    story.add(msgspec.structs.replace(packed, cache=cache))
    async with screen(story.stop(), size=(160, 60)) as (_, app, _source):
        shown = rows(app, "cache")
        assert "4 096 of 8 192" in shown[0]
        assert "50.0 % of the limit" in shown[1]
        (allocated,) = [line for line in shown if line.startswith("allocated")]
        assert "for 4 100" in allocated


async def test_the_cache_of_a_session_the_engine_does_not_hold_is_dashes() -> None:
    known = state()
    away = msgspec.structs.replace(known.sessions[0], resident=False)
    source = FakeSource(paused(), first=msgspec.structs.replace(known, sessions=[away]))
    async with screen(source=source) as (_, app, source):
        text = "\n".join(rows(app, "cache"))
        assert "not in memory" in text
        assert "kB" not in text
        assert "%" not in text
        assert rows(app, "cache")[0].split() == ["tokens", "held", "–", "of", "8", "192"]


async def test_a_step_from_a_kept_row_read_no_prefill() -> None:
    story = Story().predict().pick(5, b" a", 0.5).predict()
    packed = msgspec.msgpack.decode(story.log[-1], type=Predicted)
    back = Restored(method="row", replayed=0, ms=0.1)
    story.add(msgspec.structs.replace(packed, processed=0, forward_ms=0.0, restored=back))
    story.pick(5, b" a", 0.5).predict().stop()
    async with screen(story, size=(200, 50)) as (_, app, _source):
        text = "\n".join(rows(app, "cost"))
        assert f"prefill {len(PROMPT)}:" in text


async def test_a_restored_decode_step_is_no_prefill() -> None:
    story = Story().predict().pick(5, b" a", 0.5, total=126.5).predict()
    packed = msgspec.msgpack.decode(story.log[-1], type=Predicted)
    back = Restored(method="crop", replayed=1, ms=0.1)
    story.add(msgspec.structs.replace(packed, restored=back))
    story.pick(5, b" a", 0.5, total=109.6).predict().stop()
    async with screen(story, size=(200, 50)) as (_, app, _source):
        text = "\n".join(rows(app, "cost"))
        assert f"prefill {len(PROMPT)}: 126" in text
        assert "prefill 1:" not in text
