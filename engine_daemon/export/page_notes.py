"""What people wrote at steps, for a page: a list, and the notes of each step of its path.

Knows columns; texts come escaped.
"""

from collections import defaultdict
from collections.abc import Mapping
from html import escape

from engine_daemon.export.page_text import visible
from engine_daemon.protocol.events import Noted
from engine_daemon.recording.columns import Columns


def notes_here(columns: Columns) -> Mapping[int, list[tuple[str, str]]]:
    """Who and what, by step, of the path stood on."""
    found: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for note in _in_order(columns):
        if _is_here(columns, note):
            found[note.step].append((visible(note.who), visible(note.text)))
    return found


def notes_section(columns: Columns) -> str:
    """Every note, those of other branches with theirs; empty where there is none."""
    if not columns.notes:
        return ""
    rows = "".join(_row(columns, note) for note in _in_order(columns))
    return f'<section class="notes" aria-label="Notes"><h2>Notes</h2><ul>{rows}</ul></section>'


def _in_order(columns: Columns) -> list[Noted]:
    return sorted(columns.notes, key=lambda note: (note.step, note.t_ns))


def _row(columns: Columns, note: Noted) -> str:
    where = f"step {note.step}"
    if not _is_here(columns, note):
        where += f" of branch {note.branch}"
    elif note.step < len(columns):
        where = f'<a href="#{note.step}">{where}</a>'
    return f"<li>{where} · {escape(visible(note.who))}: {escape(visible(note.text))}</li>"


def _is_here(columns: Columns, note: Noted) -> bool:
    """Its branch holds that step of the path stood on."""
    return note.branch in (columns.branch, columns.owner(columns.branch, note.step + 1))
