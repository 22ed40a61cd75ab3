"""The registry of engines."""

import subprocess
import sys

import pytest

from engine_daemon.errors import Exit, InspectError
from engine_daemon.installing import INSTALL_ENGINE
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.backends import BACKENDS, Registered, locate, make_backend

MISTYPED = """
import sys
from engine_daemon.errors import InspectError
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.backends import locate
try:
    locate(EngineOptions(model="no-such-model", cache_dir=sys.argv[1]), print)
except InspectError as error:
    print(error.message)
print(sorted({"torch", "transformers", "tokenizers"} & set(sys.modules)))
"""


@pytest.mark.parametrize("use", [make_backend, lambda n: locate(EngineOptions(backend=n), print)])
def test_an_unknown_engine_names_the_known_ones(use: object) -> None:
    assert callable(use)
    with pytest.raises(InspectError) as caught:
        use("tpu")
    assert all(name in caught.value.hint for name in BACKENDS)
    assert caught.value.exit_code is Exit.MODEL


def test_a_missing_part_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = Registered("engine_daemon.worker.no_such_module:Odd", BACKENDS["hf"].locate, ("lacking",))
    monkeypatch.setitem(BACKENDS, "odd", odd)
    with pytest.raises(InspectError) as caught:
        make_backend("odd")
    assert "no_such_module" in caught.value.message
    assert INSTALL_ENGINE in caught.value.hint
    # Before its model is looked for, which may take a download.
    with pytest.raises(InspectError) as caught:
        locate(EngineOptions(backend="odd", model="no-such-model"), print)
    assert (caught.value.code, "lacking" in caught.value.message) == ("not_installed", True)


def test_names_are_the_backends_own() -> None:
    assert make_backend("scripted").name == "scripted"


def test_a_mistyped_name_is_refused_before_the_engine_is_imported(tmp_path: object) -> None:
    command = [sys.executable, "-c", MISTYPED, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["there is no model called 'no-such-model'", "[]"]
