"""Steps of a path worth going to: where a condition was true, where notes are and branches leave.

Knows columns; moves nothing.
"""

from engine_daemon.recording.columns import Columns
from tui.text import SafeText, show_text


def marks(columns: Columns) -> list[tuple[int, SafeText]]:
    """(step, what is there) of the path stood on, in order."""
    found: list[tuple[int, SafeText]] = []
    for step, number in columns.fired_here():
        condition = columns.conditions.get(number)
        source = f": {show_text(condition.source)}" if condition else ""
        found.append((step, SafeText(f"condition {number}{source}")))
    found += [
        (note.step, SafeText(f"note: {show_text(note.text)}"))
        for note in columns.notes
        if note.branch in (columns.branch, columns.owner(columns.branch, note.step + 1))
    ]
    found += [
        (one.step, SafeText(f"branch {one.id} leaves {one.parent}"))
        for one in columns.branches()
        if one.parent is not None
    ]
    return sorted(mark for mark in found if mark[0] <= len(columns))


def next_mark(columns: Columns, at: int, by: int) -> tuple[int, SafeText] | None:
    """The nearest one after step `at` (`by` 1) or before it (-1); several of a step count once."""
    steps = sorted({step for step, _ in marks(columns) if (step - at) * by > 0}, reverse=by < 0)
    if not steps:
        return None
    words = [said for step, said in marks(columns) if step == steps[0]]
    return steps[0], SafeText(" · ".join(words))
