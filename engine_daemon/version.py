"""The version a child of the hub tells it; a hub and its children must run the same one."""

from engine_daemon import __version__


def version() -> str:
    """The version of the code that runs."""
    return __version__
