"""`python -m tests.end_to_end.as_account USER WORDS…`: the command as another account.

Started as root, whose Python another account need not be able to read: what the command may come to
need is loaded first. From then on nothing of root is left, groups included.
"""

import importlib
import os
import pkgutil
import pwd
import sys
import warnings
from contextlib import suppress

import textual.widgets

import engine_daemon
import tui
from tui.cli import main

LATER = (
    "textual.drivers.linux_driver",
    "encodings.idna",
    "concurrent.futures.thread",
    "zmq.utils.monitor",
)
SHOWS = ("antigravity", "idlelib", "lib2to3", "this", "tkinter", "turtle", "turtledemo")
"""Modules that do something when they are imported, or want a display."""


def load() -> None:
    """The screen, its widgets, and the command's own modules; nothing of an engine."""
    for name in (*(sys.stdlib_module_names - {*SHOWS}), *LATER):
        with suppress(ImportError, AttributeError):  # not for this system, or on its way out
            importlib.import_module(name)
    no_viewers = ("worker", "tokens", "hub")
    for package, but in ((textual.widgets, ()), (tui, ()), (engine_daemon, no_viewers)):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            parts = module.name.split(".")
            if parts[1] not in but and parts[-1] != "__main__":
                importlib.import_module(module.name)


def become(user: str) -> None:
    """For good."""
    account = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)


if __name__ == "__main__":
    with warnings.catch_warnings(action="ignore"):
        load()
    become(sys.argv[1])
    sys.argv[1:] = sys.argv[2:]
    sys.exit(main())
