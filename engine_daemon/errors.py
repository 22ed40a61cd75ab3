"""The one error type that reaches users, and the exit codes of every command.

Knows nothing of sockets, models or screens.
"""

import re
from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """Exit codes of `llm-inspect`, the same for every command."""

    DONE = 0
    DIFFERENT = 1
    USAGE = 2
    MODEL = 3
    DAEMON = 4
    ENGINE = 5
    RECORDING = 6
    TIMEOUT = 124
    INTERRUPTED = 130
    HUNG_UP = 129
    TERMINATED = 143


_ENDLESS: Final = re.compile(r"\S{200,}")
"""A word that fills a screen: what somebody gave and is told of."""


def _cut(word: re.Match[str]) -> str:
    return f"{word[0][:100]}…{word[0][-40:]}"


class InspectError(Exception):
    """An error a person can act on.

    Args:
        message: what happened, one line, without a final full stop needed.
        hint: what to do next, one line; empty when the message says it.
        exit_code: what the command exits with.
        code: short machine-readable name, as on the wire (`busy`, `no_engine`, `bad_arg` …).

    `picture` is shown below them exactly as it is: a condition with a caret under its fault.
    """

    picture = ""

    def __init__(
        self, message: str, hint: str = "", *, exit_code: Exit = Exit.USAGE, code: str = "error"
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
        self.code = code

    def lines(self) -> str:
        """The one or two lines for stderr."""
        lines = f"{self.message}\n{self.hint}" if self.hint else self.message
        return _ENDLESS.sub(_cut, lines)


def not_sent() -> InspectError:
    """The error of a request that never left: there is no link to the daemon now."""
    return InspectError(
        "not sent: the daemon cannot be reached",
        "Wait for the link, then try again",
        exit_code=Exit.DAEMON,
        code="not_sent",
    )
