"""Freed memory stays with the process, unless the user has a say in it."""

import sys

import pytest

from engine_daemon.worker.pages import keep_freed_pages


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_the_users_settings_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not keep_freed_pages()
