"""Recordings of 100,000 and 300,000 steps: opening them, and going to a step on screen."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from engine_daemon.protocol.codec import pack_event
from engine_daemon.protocol.events import Event
from engine_daemon.protocol.packing import pack_floats, pack_ints
from engine_daemon.protocol.values import Candidates
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.format import frame
from engine_daemon.recording.reader import Recording
from tests.bench.table import Row, percentile
from tests.recording.logs import closed, predicted, session, stepped
from tui.recorded import RecordedSource
from tui.replay import ReplayApp
from tui.widgets.flow import Flow

SIZES = ((100_000, 1.0), (300_000, 3.0))
SEEKS = 60
_CANDIDATES = 20


def run() -> list[Row]:
    """Files of some 100 and 300 MB, in a folder that is removed again."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="lir") as folder:
        path = Path(folder) / "a.lir"
        for steps, goal_s in SIZES:
            _write(path, steps)
            begin, cpu = time.perf_counter(), time.process_time()
            columns = Columns()
            with Recording.open(path, columns):
                seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
            assert len(columns) == steps
            size = path.stat().st_size / 1e6
            rows.append(
                Row(
                    f"open a recording of {steps:,} steps ({size:.0f} MB)",
                    f"{seconds:.2f} s ({cpu:.2f} s of a core)",
                    f"≤ {goal_s} s",
                    seconds <= goal_s,
                )
            )
            if steps == SIZES[0][0]:
                rows.append(asyncio.run(_seeks(path)))
    return rows


def _events(steps: int) -> Iterator[Event]:
    yield from session([], close=False)[:-1]
    row = Candidates(
        ids=pack_ints("I", range(_CANDIDATES)),
        logit=pack_floats("f", [3.0 - k / 4 for k in range(_CANDIDATES)]),
        final_logprob=pack_floats("f", [0.0] * _CANDIDATES),
        dropped_by=bytes(_CANDIDATES),
        special=bytes(_CANDIDATES),
        piece_len=pack_ints("H", [6] * _CANDIDATES),
        pieces=b" token" * _CANDIDATES,
    )
    for step in range(steps):
        yield predicted(step, candidates=row, forward_ms=13.0 + step * 1e-4)
        yield stepped(step, piece=b" tok%d" % (step % 900))
    yield closed(2 * steps)


def _write(path: Path, steps: int) -> None:
    with path.open("wb") as file:
        for seq, event in enumerate(_events(steps)):
            file.write(frame(seq, pack_event(event)))


async def _seeks(path: Path) -> Row:
    """From the key to the next frame, at steps all over a long recording that is laid out."""
    columns = Columns()
    app = ReplayApp(RecordedSource(Recording.open(path, columns), columns))
    times = []
    async with app.run_test(size=(120, 40)) as pilot:
        while app.view.session is None or not _laid_out(app):
            await pilot.pause(0.02)
        for k in range(SEEKS):
            step = k * 7919 % len(columns)
            begin = time.perf_counter()
            app.main._look(step)
            drawn = asyncio.Event()
            app.main.call_after_refresh(drawn.set)
            await drawn.wait()
            shown = app.view.shown
            assert shown is not None
            assert shown.step == step
            times.append((time.perf_counter() - begin) * 1000)
    p50, worst = percentile(times, 0.5), max(times)
    figure = f"p50 {p50:.0f} ms, worst {worst:.0f} ms"
    return Row("go to a step of 100,000, until it is drawn", figure, "≤ 50 ms", p50 <= 50)


def _laid_out(app: ReplayApp) -> bool:
    flow = getattr(app.main.query_one("#sequence"), "_flow", None)
    return isinstance(flow, Flow) and flow.count >= app.view.whole_length
