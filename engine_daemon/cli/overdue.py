"""`--timeout` where the engine does not move: the daemon stops a session at its next step, and
there is none.

Knows clocks and states; says what is known and ends nothing.
"""

from engine_daemon.errors import Exit, InspectError
from engine_daemon.options import duration_text
from engine_daemon.protocol.state import EngineState


class Overdue:
    """Counts from the first look at a loaded engine, as the daemon does. `timeout_s` may be
    infinite."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._since: float | None = None

    def check(self, engine: EngineState, now: float, *, loaded: bool) -> None:
        """Raise InspectError (exit 124) when the time is over and the engine is stuck."""
        if self._since is None and loaded:
            self._since = now
        if self._since is None or now - self._since < self._timeout_s or engine.word != "stuck":
            return
        raise InspectError(
            f"the --timeout of {duration_text(self._timeout_s)} is over, and {engine.message}",
            f"The session stands as soon as it goes on. {engine.hint}",
            exit_code=Exit.TIMEOUT,
            code="timeout",
        )
