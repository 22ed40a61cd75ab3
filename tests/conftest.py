"""What all tests share."""

import gc
import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Test workers share the cores: torch threads that spin for each other would slow a step tenfold.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# A thousand processes are started: modules are compiled once, as where the project is installed.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Whoever runs the tests with nohup or in the background hands down signals that are ignored, and
# every process under test would ignore them, too.
for ignored in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        restored = signal.default_int_handler if ignored == signal.SIGINT else signal.SIG_DFL
        signal.signal(ignored, restored)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """While tests are imported there is nothing to collect, and torch and they stay: they are not
    walked again at every collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
