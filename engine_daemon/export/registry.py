"""The formats of `export --to`: a file each, and a line here.

Knows names; a format's own file is imported when it is its turn.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Final

from engine_daemon.recording.reader import Recording

Export = Callable[[Recording], Iterator[bytes]]
"""A recording as the bytes of another file, in pieces. Raises what `Recording.events` raises."""

EXPORTERS: Final[dict[str, str]] = {
    "jsonl": "engine_daemon.export.jsonl",
    "csv": "engine_daemon.export.csv_rows",
    "html": "engine_daemon.export.html_page",
    "trace": "engine_daemon.export.chrome_trace",
    "text": "engine_daemon.export.plain",
}
"""Name of a format and its file, which has a function `chunks` of the kind above."""


def exporter(name: str) -> Export:
    """The function that makes this format."""
    found: Export = import_module(EXPORTERS[name]).chunks
    return found
