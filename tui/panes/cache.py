"""CACHE: what the session holds on the devices, from the real tensors.

A value the backend cannot tell is a dash. Knows one cache report.
"""

import time
from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment

from engine_daemon.protocol.values import CacheKind, CacheReport
from tui.panes.base import Line, Pane, empty, spread
from tui.text import DASH, SafeText, count, fit, percent, show_text, size
from tui.widgets.bars import bar


class CachePane(Pane):
    """Tokens held of those that fit, and the bytes of it."""

    TITLE: ClassVar[str] = "CACHE"
    SLOW_S: ClassVar[float] = 0.25

    def draw(self, columns: int, rows: int) -> Sequence[Line]:
        """The most telling rows first, in case there are few."""
        detail = self.view.shown
        if detail is None:
            return empty(SafeText(DASH), columns, rows, self.palette)
        cache = detail.predicted.cache
        lines = [
            self._pair("tokens held", count(cache.tokens), columns),
            *self._filled(cache, columns),
            *self._by_kind(cache, columns),
            self._pair("a token", self._each(cache), columns),
            self._pair("allocated", size(cache.allocated_bytes), columns),
        ]
        for name, held in (
            ("parked branches", cache.parked_bytes),
            ("snapshots", cache.snapshot_bytes),
            ("logits of steps", cache.rows_bytes),
        ):
            if held is not None:
                lines.append(self._pair(name, size(held), columns))
        restored = detail.predicted.restored
        if restored is not None:
            words = SafeText(f"{restored.method}, {restored.replayed} read, {restored.ms:.0f} ms")
            lines.append(self._pair("restored by", words, columns))
        lines += [
            self._pair("device", self._device(cache), columns),
            self._pair("weights", self._weights(), columns),
            self._pair("mode", SafeText("key/value" if cache.mode == "kv" else "none"), columns),
            self._pair("limit", SafeText(f"{count(cache.limit_tokens)} tokens"), columns),
        ]
        self.border_subtitle = f"{rows} of {len(lines)} · z shows all" if rows < len(lines) else ""
        return lines[:rows]

    def _pair(self, name: str | SafeText, value: SafeText, columns: int) -> Line:
        left = [Segment(name, self.palette.muted)]
        return spread(left, [Segment(value, self.palette.base)], columns, self.palette)

    def _filled(self, cache: CacheReport, columns: int) -> list[Line]:
        """How much of what is allocated is used."""
        if not cache.capacity_tokens or cache.tokens is None:
            return [self._pair("fit in it", count(cache.capacity_tokens), columns)]
        share = cache.tokens / cache.capacity_tokens
        label = SafeText(f" {percent(share)} of {count(cache.capacity_tokens)}")
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
        return [
            self._pair("growing", size(cache.growing_bytes), columns),
            self._pair("fixed", size(cache.fixed_bytes), columns),
        ]

    def _kind(self, kind: CacheKind, columns: int) -> Line:
        name = SafeText(f"{show_text(kind.kind)}×{kind.layers}")
        return self._pair(name, SafeText(f"{size(kind.bytes)} {kind.growth}"), columns)

    def _device(self, cache: CacheReport) -> SafeText:
        """What this process takes on the device, of all there is."""
        if cache.device_used_bytes is None:
            return SafeText(DASH)
        return SafeText(f"{size(cache.device_used_bytes)} of {size(cache.device_total_bytes)}")

    def _weights(self) -> SafeText:
        """Whether the parameters in memory are what was loaded, and when that was looked at."""
        engine = self.view.engine
        check = None if engine is None else engine.weights
        if check is None:
            return SafeText(DASH)
        if check.running:
            return SafeText("being checked")
        when = time.strftime("%H:%M:%S", time.localtime(check.wall_ns / 1e9))
        word = "frozen" if check.same else "CHANGED"
        return SafeText(f"{word}, checked {when}")

    def _each(self, cache: CacheReport) -> SafeText:
        if not cache.tokens or cache.growing_bytes is None:
            return SafeText(DASH)
        return size(cache.growing_bytes // cache.tokens)
