"""CACHE: what the session holds on the devices, from the real tensors.

A value the backend cannot tell is a dash. Knows one cache report.
"""

import time
from collections.abc import Sequence
from typing import ClassVar, Final

from rich.segment import Segment

from engine_daemon.protocol.values import CacheKind, CacheReport, Candidates, Leading, Restored
from tui.panes.base import Line, Pane, empty, spread
from tui.text import DASH, SafeText, clip, count, fit, percent, show_text, size, token, width
from tui.widgets.bars import bar

_WIDE: Final = 24
"""Cells from which on words need not be short."""


class CachePane(Pane):
    """Tokens held of those that may be, and the bytes of it."""

    TITLE: ClassVar[str] = "CACHE"
    SLOW_S: ClassVar[float] = 0.25

    def draw(self, columns: int, rows: int) -> Sequence[Line]:
        """The most telling rows first, in case there are few."""
        detail = self.view.shown
        if detail is None:
            return empty(SafeText(DASH), columns, rows, self.palette)
        cache, restored = detail.predicted.cache, detail.predicted.restored
        gone = self.view.at_head and not (self.view.resident and self._of_this_engine())
        if gone:  # what it held last is held by nobody
            restored = None
            cache = CacheReport(mode=cache.mode, limit_tokens=cache.limit_tokens)
        lines = [
            self._pair("tokens held", columns, *_held(cache)),
            *(self._not_here() if gone else self._filled(cache, columns)),
            *self._by_kind(cache, columns),
            self._pair("weights", columns, *self._weights()),
        ]
        if restored is not None:
            lines.append(self._pair("restored by", columns, *_restored(restored)))
            if restored.diverged is not None:
                words = _diverged(restored.diverged, detail.predicted.candidates)
                lines.append(self._pair("diverged", columns, *words))
        lines += [
            self._pair("a token", columns, _each(cache)),
            self._pair("allocated", columns, *_allocated(cache)),
        ]
        if cache.device_used_bytes is not None:
            lines.append(self._pair("device", columns, *_device(cache)))
        for name, held in (
            ("parked branches", cache.parked_bytes),
            ("snapshots", cache.snapshot_bytes),
            ("sessions' logits", cache.rows_bytes),
        ):
            if held:
                lines.append(self._pair(name, columns, size(held)))
        mode = SafeText("key/value" if cache.mode == "kv" else "none")
        lines.append(self._pair("mode", columns, mode))
        self.border_subtitle = f"{rows} of {len(lines)} · z shows all" if rows < len(lines) else ""
        return lines[:rows]

    def _of_this_engine(self) -> bool:
        """False on a branch that was last gone on with before the engine's last start."""
        columns = self.view.columns
        seq = columns.seq_pending
        if seq is None:
            seq = columns.seq_stepped[-1] if len(columns) else columns.next
        return seq > columns.seq_engine

    def _pair(self, name: str | SafeText, columns: int, *values: SafeText) -> Line:
        """A name and the longest of its values that fits beside it."""
        room = columns - width(name) - 1
        value = next((one for one in values if width(one) <= room), clip(values[-1], room))
        left = [Segment(name, self.palette.muted)]
        return spread(left, [Segment(value, self.palette.base)], columns, self.palette)

    def _not_here(self) -> list[Line]:
        return [[Segment("not in memory", self.palette.muted)]]

    def _filled(self, cache: CacheReport, columns: int) -> list[Line]:
        """How much is used of what may be: the limit, or what is allocated where there is none."""
        most = cache.limit_tokens or cache.capacity_tokens
        if not most or cache.tokens is None:
            return []
        share = cache.tokens / most
        limit = "the limit" if columns >= _WIDE else "limit"
        of = limit if cache.limit_tokens else f"{count(most)} allocated"
        label = SafeText(f" {percent(share)} of {of}")
        cells = max(columns - len(label), 4)
        return [
            [
                Segment(bar(share, cells), self.palette.by_prob(1.0)),
                Segment(fit(label, columns - cells), self.palette.base),
            ]
        ]

    def _by_kind(self, cache: CacheReport, columns: int) -> list[Line]:
        """Bytes by kind of layer where there are several, else what grows and what is fixed."""
        if cache.kinds is not None and len(cache.kinds) > 1:
            return [self._kind(kind, columns) for kind in cache.kinds]
        lines = [self._pair("growing", columns, size(cache.growing_bytes))]
        if cache.fixed_bytes:
            lines.append(self._pair("fixed", columns, size(cache.fixed_bytes)))
        return lines

    def _kind(self, kind: CacheKind, columns: int) -> Line:
        name = SafeText(f"{show_text(kind.kind)}×{kind.layers}")
        return self._pair(
            name, columns, SafeText(f"{size(kind.bytes)} {kind.growth}"), size(kind.bytes)
        )

    def _weights(self) -> list[SafeText]:
        """Whether the parameters in memory are what was loaded, and when that was looked at."""
        engine = self.view.engine
        check = None if engine is None else engine.weights
        if check is None:
            return [SafeText(DASH)]
        if check.running:
            return [SafeText("being checked")]
        when = time.strftime("%H:%M:%S", time.localtime(check.wall_ns / 1e9))
        word = "frozen" if check.same else "CHANGED"
        return [SafeText(f"{word}, checked {when}"), SafeText(f"{word} {when}"), SafeText(word)]


def _held(cache: CacheReport) -> list[SafeText]:
    held = count(cache.tokens)
    if cache.limit_tokens is None:
        return [held]
    return [SafeText(f"{held} of {count(cache.limit_tokens)}"), held]


def _restored(restored: Restored) -> list[SafeText]:
    """How the distribution came back; a kept row cost no forward."""
    if restored.method == "row":
        return [SafeText("a kept row, nothing read"), SafeText("a kept row")]
    words = f"{restored.method}, {restored.replayed} read"
    return [SafeText(f"{words}, {restored.ms:.0f} ms"), SafeText(words), SafeText(restored.method)]


def _diverged(before: Leading, now: Candidates) -> list[SafeText]:
    """Who led before the sequence was read again, and by how much."""
    piece = next((row.piece for row in now.rows() if row.id == before.id), None)
    name = SafeText(f"id {before.id}") if piece is None else token(piece)
    led = SafeText(f"{name} by {percent(before.margin)}")
    return [SafeText(f"before, {name} led by {percent(before.margin)}"), led, name]


def _allocated(cache: CacheReport) -> list[SafeText]:
    """All buffers, and how many tokens fit in them."""
    held = size(cache.allocated_bytes)
    if cache.capacity_tokens is None:
        return [held]
    words = f"{held} for {count(cache.capacity_tokens)}"
    return [SafeText(f"{words} tokens"), SafeText(words), held]


def _device(cache: CacheReport) -> list[SafeText]:
    """What this process takes on the device, of all there is."""
    used = size(cache.device_used_bytes)
    return [SafeText(f"{used} of {size(cache.device_total_bytes)}"), used]


def _each(cache: CacheReport) -> SafeText:
    if not cache.tokens or cache.growing_bytes is None:
        return SafeText(DASH)
    return size(cache.growing_bytes // cache.tokens)
