"""The installed version of this package; a hub and its children must run the same one."""

from importlib.metadata import version as _installed
from typing import Final

DISTRIBUTION: Final = "llm-inspect-tui"


def version() -> str:
    """As installed now, read from disk: after an upgrade it differs from what a daemon runs."""
    return _installed(DISTRIBUTION)
