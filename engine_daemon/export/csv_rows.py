"""A recording as CSV: one row a step, named as in the JSON lines, candidates left out.

Knows the lines of `jsonl`; nothing of events. A cell is never a formula: a text that a spreadsheet
would compute begins with `'`; `bytes` has every token exactly.
"""

import csv
import io
from collections.abc import Iterator
from typing import Any, Final

from engine_daemon.characters import Visible
from engine_daemon.export.jsonl import export
from engine_daemon.export.objects import Line
from engine_daemon.recording.reader import Recording

_PLACE: Final = ("session", "branch", "step", "position", "phase", "processed")
_CHOSEN: Final = (
    *("id", "text", "bytes", "logit", "logprob", "prob", "final_prob", "rank", "how", "draw"),
)
_FIGURES: Final = ("entropy_bits", "logsumexp", "margin", "tail_prob", "ties_cut")
_TIMES: Final = (
    *("tokenize_ms", "forward_ms", "pick_ms", "append_ms", "probe_ms", "total_ms", "waited_ms"),
    "after_pause",
)
_CACHE: Final = (
    *("mode", "tokens", "growing_bytes", "fixed_bytes", "allocated_bytes", "capacity_tokens"),
)
_WORK: Final = ("flops", "bytes_moved")
HEAD: Final = (
    *(*_PLACE, *_CHOSEN, *_FIGURES, *_TIMES),
    *(*(f"cache_{name}" for name in _CACHE), "restored", *_WORK, "stop"),
)
"""The first row."""
_FORMULA: Final = (*"=+-@\t\r\n", *"＝＋－＠")
_ROWS_AT_ONCE: Final = 512
_VISIBLE: Final = Visible(kept="\n\t")


def chunks(recording: Recording) -> Iterator[bytes]:
    """The rows, UTF-8, each ended by CR LF (RFC 4180); steps that lost an event are missing."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(HEAD)
    for number, line in enumerate(export(recording)):
        if line["event"] == "step":
            writer.writerow(_row(line))
        if number % _ROWS_AT_ONCE == 0:
            yield _taken(out)
    yield _taken(out)


def _taken(out: io.StringIO) -> bytes:
    made = out.getvalue().encode()
    out.seek(0)
    out.truncate()
    return made


def _row(step: Line) -> list[object]:
    line: dict[str, Any] = step
    restored = line["restored"]
    values = [line[name] for name in _PLACE]
    values += [line["chosen"][name] for name in _CHOSEN]
    values += [line[name] for name in _FIGURES]
    values += [line["timing"][name] for name in _TIMES]
    values += [line["cache"][name] for name in _CACHE]
    values.append(None if restored is None else restored["method"])
    values += [line["work"][name] for name in _WORK]
    values.append(line["stop"])
    return [_cell(value) for value in values]


def _cell(value: object) -> object:
    """Numbers as they are, switches as 0 and 1, texts safe to show and never computed."""
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, str):
        return value
    text = value.translate(_VISIBLE)
    return f"'{text}" if text.startswith(_FORMULA) else text
