"""The plot's library is there before the first picture, as in a screen open for a while."""

import threading

import pytest

from tui.widgets.plot import is_loaded, load_beside


@pytest.fixture(scope="session", autouse=True)
def _loaded_plot() -> None:
    over = threading.Event()
    load_beside(over.set)
    assert over.wait(60)
    assert is_loaded()
