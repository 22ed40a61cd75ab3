"""Asking a process of the engine's what only it can say: no command imports torch for an answer.

Knows how it is asked; what is asked and answered is the module's that runs there.
"""

import subprocess
import sys
from typing import Final

_ASKED_S: Final = 120.0
"""A first import of torch from a slow disk takes long."""


def answer(module: str, *words: str) -> list[str]:
    """The lines that `python -P -m module words` prints; none where it cannot be asked."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", module, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ASKED_S,
            cwd="/",
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines()
