"""How threads wait: ours unless the user's."""

import os

import pytest

from engine_daemon.worker.threads import SPINS, sleep_when_idle


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv("GOMP_SPINCOUNT", "")  # restored afterwards, whatever is set meanwhile
    monkeypatch.delenv("GOMP_SPINCOUNT")


def test_threads_sleep_soon() -> None:
    sleep_when_idle()
    assert os.environ["GOMP_SPINCOUNT"] == SPINS


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_what_the_user_set_counts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "active")
    sleep_when_idle()
    assert os.environ.get("GOMP_SPINCOUNT") == ("active" if name == "GOMP_SPINCOUNT" else None)
