"""The first line of a replay: its badge, speed and step, the file and how far it is.

Knows the view; draws segments.
"""

from rich.segment import Segment

from tui.panes.base import Line
from tui.playing import Elapsed
from tui.text import SafeText, clip, show_text
from tui.theming import Palette
from tui.view import View

_NAME = 24


def replay_state(view: View, palette: Palette) -> Line:
    """`▶ REPLAY 4× playing  step 12 of 60`."""
    replay, columns = view.replay, view.columns
    assert replay is not None
    line: Line = [Segment("  ", palette.base)]
    if view.engine is not None and view.engine.synthetic:
        line += [Segment(" SYNTHETIC ", palette.mark_badge), Segment(" ", palette.base)]
    line.append(Segment(" ▶ REPLAY ", palette.lit))
    waits = replay.playing and replay.growing and view.at_head
    word = "waiting for more" if waits else "playing" if replay.playing else "paused"
    line.append(Segment(f" {word} {_times(replay.speed)}", palette.accent))
    if (several := len(columns.branches())) > 1:
        line.append(Segment(f" branch {columns.branch} ({several} branches)", palette.title))
    line.append(Segment(f" step {view.at} of {view.head}", palette.title))
    if replay.missing or not columns.complete:
        line.append(Segment(" DAMAGED", palette.error))
    return line


def replay_right(
    view: View, palette: Palette, elapsed: Elapsed, rate: str, *, name: bool, times: bool
) -> Line:
    """`a.lir · 1.2 of 3.4 s · 18.3 tok/s`, as much of it as is wanted."""
    replay, columns = view.replay, view.columns
    assert replay is not None
    now = elapsed.at(columns, view.at)
    whole = elapsed.at(columns, len(columns) - 1)
    parts = [
        clip(show_text(replay.name), _NAME) if name else "",
        _seconds(now, whole) if times else "",
    ]
    words = " · ".join(filter(None, parts))
    told = [Segment(words, palette.muted)] if words else []
    if rate:
        told += [Segment(" · ", palette.muted)] if words else []
        told.append(Segment(rate, palette.title))
    return [*told, Segment(" ", palette.base)]


def _times(speed: float) -> str:
    return f"{speed:g}×"


def _seconds(now: float, whole: float) -> SafeText:
    """Both in the unit of the longer one."""
    if whole < 100:
        return SafeText(f"{now:.1f} of {whole:.1f} s")
    return SafeText(f"{_clock(now)} of {_clock(whole)}")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
