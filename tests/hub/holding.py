"""Workers that a test holds up in a C call which keeps Python's lock, for as long as it likes."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INJECTED = Path(__file__).parents[1] / "faults" / "injected"


def holdable(root: Path) -> Path:
    """For daemons started from now on, inside `directories()`: workers wait for this file's lock
    when they start, and whenever they get SIGUSR2."""
    lock = root / "lock"
    lock.touch()
    os.environ["LLM_INSPECT_TEST_HOLD"] = str(lock)
    known = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(INJECTED), known]))
    return lock


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """It is ours: who waits for it stands."""
    with lock.open("r+") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        yield
