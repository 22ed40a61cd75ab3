"""The registry of engines."""

import pytest

from engine_daemon.errors import Exit, InspectError
from engine_daemon.worker.backends import BACKENDS, make_backend


def test_an_unknown_engine_names_the_known_ones() -> None:
    with pytest.raises(InspectError) as caught:
        make_backend("tpu")
    assert all(name in caught.value.hint for name in BACKENDS)
    assert caught.value.exit_code is Exit.MODEL


def test_a_missing_part_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "odd", "engine_daemon.worker.no_such_module:Odd")
    with pytest.raises(InspectError) as caught:
        make_backend("odd")
    assert "no_such_module" in caught.value.message
    assert "pip install" in caught.value.hint


def test_names_are_the_backends_own() -> None:
    assert make_backend("scripted").name == "scripted"
