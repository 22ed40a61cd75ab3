"""Why a run ended, in words for people.

Knows events and what was typed; writes nothing.
"""

import math
from dataclasses import dataclass
from typing import Final

from engine_daemon.cli.options import Given
from engine_daemon.export.objects import condition_text
from engine_daemon.options import duration_text
from engine_daemon.protocol.events import Stopped
from engine_daemon.recording.columns import Columns

STOPS: Final = {
    "goal": "a step that was asked for",
    "pause": "a pause",
    "eos": "the end of the sequence",
    "length": "length (--steps)",
    "context": "a full context",
    "condition": "a condition",
    "timeout": "--timeout",
    "no_memory": "too little memory",
    "engine_lost": "a lost engine",
    "disk_full": "a full disk",
    "error": "an error of the engine",
}
"""Reasons to stop, for people."""
WISHED: Final = ("goal", "pause")
"""Those that somebody asked for."""


@dataclass(frozen=True, slots=True)
class Typed:
    """What of the command line may end a run. The session's first conditions are `until`, the next
    ones `stop`; the first `failing` of them make the run fail."""

    until: int = 0
    stop: tuple[str, ...] = ()
    failing: int = 0
    timeout_s: float = math.inf

    @classmethod
    def of(cls, given: Given) -> "Typed":
        """What was given."""
        until = len(given.until)
        return cls(
            until=until,
            stop=given.stop,
            failing=until if given.fail_on_until else 0,
            timeout_s=given.timeout or math.inf,
        )

    def cause(self, stopped: Stopped) -> str:
        """The condition that stopped it, as it was typed."""
        assert stopped.condition is not None
        text = stopped.condition - self.until
        if 1 <= text <= len(self.stop):
            return f'--stop "{self.stop[text - 1]}"'
        return condition_text(stopped)


def why(stopped: Stopped, columns: Columns, typed: Typed) -> str:
    """Why branch 0 stopped where nobody asked it to just there; empty where that is plain, as after
    `--steps` or at the end of the sequence."""
    steps = len(columns.path(0))
    if stopped.condition is not None:
        (at, _) = columns.fired[-1]
        return f"stopped at step {at} by {typed.cause(stopped)}"
    if stopped.reason == "context":
        positions = len(columns.prompt_ids) + steps
        return f"stopped at step {steps - 1}: the context of {positions} positions is full"
    if stopped.reason == "timeout":
        limit = "" if math.isinf(typed.timeout_s) else f" of {duration_text(typed.timeout_s)}"
        at = steps if stopped.pending else max(steps - 1, 0)
        return f"stopped at step {at}: the --timeout{limit} is over"
    return ""
