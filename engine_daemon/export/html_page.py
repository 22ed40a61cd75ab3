"""A recording as one self-contained page: its tokens shaded, what else was likely, the cost.

Every text from outside is made visible and escaped; the page's policy lets no other script run and
nothing be loaded. Of several branches the one the session stands on. Knows columns and events.
"""

import base64
import hashlib
import math
import time
from array import array
from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files
from statistics import median
from string import Template
from typing import Final

import msgspec

from engine_daemon.export.chart import Chart, cost_chart
from engine_daemon.export.page_notes import notes_here, notes_section
from engine_daemon.export.page_text import cell, grouped, visible
from engine_daemon.protocol.codec import WireError, unpack_event
from engine_daemon.protocol.events import Predicted
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.reader import Recording
from engine_daemon.recording.rows import NO_SEQ, Flag, exp
from engine_daemon.sampler_words import sampler_words

_LEVELS: Final = 8
_MOST_CANDIDATES: Final = 400_000
"""Of the whole page; beyond, each step keeps its first few."""
_APART: Final = int(Flag.LOST | Flag.PREFILL | Flag.RESTORED)


class _Step(msgspec.Struct, frozen=True):
    """What the page knows of a step. `text` is a place in `texts`; `candidates` are rows of id,
    text, raw probability, final probability, and what dropped it; `notes` who and what."""

    id: int
    text: int
    how: str
    rank: int
    prob: float | None
    final: float | None
    entropy: float | None
    margin: float | None
    ms: float | None
    forward: float | None
    candidates: list[tuple[int, int, float, float, str]]
    notes: list[tuple[str, str]]


class _Data(msgspec.Struct, frozen=True):
    """All that the page's script is given. `first`: tokens before the first step; `x` where each
    step is on the chart; `cut` candidates are kept a step (0: all that were recorded)."""

    first: int
    prompt: list[tuple[str, int, float | None, int]]
    texts: list[str]
    steps: list[_Step]
    x: list[float | None]
    most_entropy: float
    most_ms: float
    cut: int


def chunks(recording: Recording) -> Iterator[bytes]:
    """The page, UTF-8."""
    columns = recording.columns()
    chart = cost_chart(columns)
    style, script = _asset("page.css"), _asset("page.js")
    data = msgspec.json.encode(_data(recording, columns, chart)).decode()
    page = Template(_asset("page.html")).substitute(
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        title=escape(_title(columns)),
        heading=_heading(columns),
        facts=" · ".join(escape(fact) for fact in _facts(columns)),
        warnings="".join(f'<p class="warning">{escape(visible(w))}</p>' for w in _lost(recording)),
        figures="".join(_figure(name, value) for name, value in _figures(columns)),
        scale="".join(f'<i class="h{level}"></i>' for level in range(_LEVELS + 1)),
        tokens="".join(_tokens(columns)),
        legend=_legend(chart),
        chart=chart.svg or '<p class="hint">There are too few steps to draw.</p>',
        notes=notes_section(columns),
        footer=escape(_made_by(columns)),
        data=_harmless(data),
    )
    yield page.encode("utf-8", "backslashreplace")


def _asset(name: str) -> str:
    return (files("engine_daemon.export") / "page" / name).read_text("utf-8")


def _hash(text: str) -> str:
    """What the page's policy knows a script or a style by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _harmless(data: str) -> str:
    """JSON that cannot end the element it lies in."""
    for char in "<>&":
        data = data.replace(char, f"\\u{ord(char):04x}")
    return data


# Words -------------------------------------------------------------------------------------------


def _title(columns: Columns) -> str:
    opened = columns.opened
    named = columns.title or (opened.session if opened else "a session")
    return visible(f"{named} · llm-inspect")


def _heading(columns: Columns) -> str:
    engine = columns.engine
    name = visible(engine.model.name) if engine else "no model yet"
    badge = ' <span class="badge">SYNTHETIC</span>' if engine and engine.synthetic else ""
    title = f" · {visible(columns.title)}" if columns.title else ""
    return escape(name + title) + badge


def _facts(columns: Columns) -> list[str]:
    facts = []
    if columns.engine is not None:
        model = columns.engine.model
        facts += [visible(f"{model.dtype} on {model.device}×{model.ranks}")]
        facts += [visible(f"engine {columns.engine.backend}")]
    if columns.opened is not None:
        facts.append(visible(f"session {columns.opened.session}"))
        facts.append(time.strftime("%Y-%m-%d %H:%M", time.localtime(_seconds(columns))))
    facts.append(sampler_words(columns.sampler))
    if len(columns.branches()) > 1:
        facts.append(f"branch {columns.branch} of {len(columns.branches())}")
    return facts


def _seconds(columns: Columns) -> float:
    created = columns.opened.created_ns / 1e9 if columns.opened else 0.0
    return min(max(created, 0.0), 4e9)  # a broken recording may say anything


def _lost(recording: Recording) -> list[str]:
    return [] if recording.state == "ok" else recording.report()


def _figures(columns: Columns) -> Iterator[tuple[str, str]]:
    rows = columns
    yield "prompt tokens", str(len(columns.prompt_tokens))
    yield "generated", str(len(rows))
    known = [p for p in rows.prob if p > 0]
    if known:
        mean = sum(math.log(p) for p in known) / len(known)
        yield "mean probability (geometric)", f"{math.exp(mean) * 100:.1f} %"
    times = [ms for ms, f in zip(rows.total_ms, rows.flags, strict=True) if not f & _APART]
    if times:
        yield "median step", f"{median(times):.1f} ms"
    if forced := sum(bool(flags & Flag.FORCED) for flags in rows.flags):
        yield "forced", str(forced)
    if columns.last_stop is not None or columns.stop is not None:
        reason = columns.last_stop or (columns.stop.reason if columns.stop else "")
        yield "stopped by", str(reason).replace("_", " ")


def _figure(name: str, value: str) -> str:
    return f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"


def _legend(chart: Chart) -> str:
    parts = ['<i class="all"></i>measured']
    if chart.pauses:
        parts.append('<i class="pause"></i>right after a pause')
    if chart.naive:
        parts.append('<i class="naive"></i>without a cache, measured')
    return "".join(parts) if chart.svg else ""


def _made_by(columns: Columns) -> str:
    tool = visible(columns.opened.tool) if columns.opened else "llm-inspect"
    return f"Recorded by {tool}. Raw probabilities are the model's, final ones what the pick used."


# Tokens ------------------------------------------------------------------------------------------


def _tokens(columns: Columns) -> Iterator[str]:
    """Every token as an element that says its number, shaded by its probability."""
    prompt = columns.prompt_tokens
    pieces = [(token.piece, token.special or token.added) for token in prompt]
    first, noted = len(pieces), notes_here(columns)
    pieces += [(columns.piece(k), columns.special(k)) for k in range(len(columns))]
    for n, text in enumerate(grouped(pieces)):
        shown = "<u>·</u>" if text is None else escape(text)
        names = _classes(columns, n - first) if n >= first else ["q"]
        if pieces[n][1]:
            names.append("special")
        if n - first in noted:
            names.append("noted")
        yield f'<b data-n="{n}" class="{" ".join(names)}">{shown}</b>'


def _classes(columns: Columns, step: int) -> list[str]:
    prob = columns.prob[step]
    level = 0 if math.isnan(prob) else round(_LEVELS * (1 - prob))
    forced = columns.flags[step] & Flag.FORCED
    return [f"h{level}", "forced"] if forced else [f"h{level}"]


# Data --------------------------------------------------------------------------------------------


class _Texts:
    """Texts of tokens, each kept once."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._places: dict[bytes, int] = {}

    def place(self, piece: bytes) -> int:
        """Where the text of this piece is."""
        found = self._places.get(piece)
        if found is None:
            found = self._places[piece] = len(self.all)
            self.all.append(cell(piece))
        return found


def _data(recording: Recording, columns: Columns, chart: Chart) -> _Data:
    texts, notes = _Texts(), notes_here(columns)
    recorded = columns.limits.candidates if columns.limits else 0
    most = max(_MOST_CANDIDATES // max(len(columns), 1), 1)
    steps = [
        _step(columns, k, texts, predicted, most, notes.get(k, []))
        for k, predicted in enumerate(_distributions(recording, columns))
    ]
    times = [ms for ms, f in zip(columns.total_ms, columns.flags, strict=True) if not f & _APART]
    return _Data(
        first=len(columns.prompt_tokens),
        prompt=list(_prompt(columns)),
        texts=texts.all,
        steps=steps,
        x=chart.xs,
        most_entropy=_most(columns.entropy),
        most_ms=_most(sorted(times)[: max(len(times) * 99 // 100, 1)]),
        cut=most if recorded > most else 0,
    )


def _distributions(recording: Recording, columns: Columns) -> Iterator[Predicted | None]:
    for seq in columns.seq_predicted:
        packed = None if seq == NO_SEQ else recording.event(seq)
        try:
            event = None if packed is None else unpack_event(packed)
        except WireError:
            event = None
        yield event if isinstance(event, Predicted) else None


def _step(
    columns: Columns,
    k: int,
    texts: _Texts,
    predicted: Predicted | None,
    most: int,
    notes: list[tuple[str, str]],
) -> _Step:
    lost = columns.flags[k] & Flag.LOST
    return _Step(
        id=columns.ids[k],
        text=texts.place(columns.piece(k)),
        how="lost" if lost else columns.how(k),
        rank=columns.rank[k],
        prob=_short(columns.prob[k]),
        final=_short(columns.final_prob[k]),
        entropy=_short(columns.entropy[k]),
        margin=_short(columns.margin[k]),
        ms=_short(columns.total_ms[k]),
        forward=_short(columns.forward_ms[k]),
        candidates=[] if predicted is None else _candidates(predicted, texts, most),
        notes=notes,
    )


def _candidates(
    predicted: Predicted, texts: _Texts, most: int
) -> list[tuple[int, int, float, float, str]]:
    try:
        rows = predicted.candidates.rows()[:most]
    except ValueError:  # of a broken recording
        return []
    return [
        (
            row.id,
            texts.place(row.piece),
            _short(exp(row.logit - predicted.logsumexp)) or 0.0,
            _short(exp(row.final_logprob)) or 0.0,
            row.dropped_by.word or "",
        )
        for row in rows
    ]


def _prompt(columns: Columns) -> Iterator[tuple[str, int, float | None, int]]:
    logprobs, ranks = columns.prompt_scores
    for n, token in enumerate(columns.prompt_tokens):
        scored = n < len(logprobs) and not math.isnan(logprobs[n])
        prob = _short(exp(logprobs[n])) if scored else None
        yield cell(token.piece), token.id, prob, ranks[n] if scored else 0


def _short(value: float) -> float | None:
    """Six digits, or nothing where there is no number."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _most(values: "Iterable[float] | array[float]") -> float:
    return max((value for value in values if math.isfinite(value)), default=0.0) or 1.0
