"""The loading of a model as lines on standard error: a bar on a terminal, else a line a stage.

Knows the daemon's state; not how it arrives.
"""

import os
import shutil
import sys
import threading
import time
from typing import Final

from engine_daemon.cli.output import safe, say, write_error
from engine_daemon.protocol.state import EngineState, State
from engine_daemon.sizes import sized, sized_of
from engine_daemon.stages import stage_text

_BAR_CELLS: Final = 24
_PARTS: Final = " ▏▎▍▌▋▊▉█"
_REDRAW_S: Final = 0.1
_TICK_S: Final = 0.2
"""The time goes on showing that something happens while nothing is told."""


class LoadProgress:
    """Shows each state it is given, and on a terminal the time; `close` takes a bar away."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._bar = sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
        self._stage: str | None = None
        self._stuck = False
        self._engine: EngineState | None = None
        self._drawn = 0.0
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._ticking: threading.Thread | None = None

    def update(self, state: State) -> None:
        """What the engine is doing now."""
        engine = state.engine
        stuck, self._stuck = self._stuck, engine.word == "stuck"
        if engine.word not in ("starting", "loading"):
            self.close()
            if self._stuck and not stuck:
                say(f"{engine.message}; {engine.hint}")
        elif self._bar:
            with self._lock:
                self._draw(engine)
            self._tick()
        elif engine.stage != self._stage:
            write_error(f"{self._stage_text(engine)}\n")
        self._stage = engine.stage

    def close(self) -> None:
        """Nothing more to show."""
        self._closed.set()
        if self._ticking is not None:
            self._ticking.join()
            self._ticking = None
        if self._bar and self._drawn:
            write_error("\r\x1b[K")
            self._drawn = 0.0

    def _tick(self) -> None:
        """Draw now and then until it is closed."""
        if self._ticking is None:
            self._closed.clear()
            self._ticking = threading.Thread(target=self._go_on_ticking, daemon=True)
            self._ticking.start()

    def _go_on_ticking(self) -> None:
        while not self._closed.wait(_TICK_S):
            with self._lock:
                if self._engine is not None:
                    self._draw(self._engine)

    def _draw(self, engine: EngineState) -> None:
        now = time.monotonic()
        self._engine = engine
        if engine.stage == self._stage and now - self._drawn < _REDRAW_S:
            return
        self._drawn = now
        room = shutil.get_terminal_size().columns - 1
        line = f"{now - self._started:5.1f} s  {self._stage_text(engine)}{_amount(engine)}"
        write_error(f"\r\x1b[K{line[:room]}", "replace")

    def _stage_text(self, engine: EngineState) -> str:
        named = engine.model_name and engine.backend != "scripted"
        name = f"{safe(engine.model_name)}: " if named else ""
        return name + safe(stage_text(engine.stage))


def _amount(engine: EngineState) -> str:
    if not engine.total:
        return f"  {sized(engine.done)}" if engine.done else ""
    share = min(engine.done / engine.total, 1.0)
    return f"  {bar(share)} {sized_of(engine.done, engine.total)}"


def bar(share: float) -> str:
    """A bar that is filled to this share, in eighths of a cell."""
    eighths = round(share * _BAR_CELLS * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_PARTS[part] if part else "")).ljust(_BAR_CELLS, "·")
