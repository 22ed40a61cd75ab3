"""Names in hints, and files that are none."""

import os
from pathlib import Path

import pytest

from engine_daemon.paths import read_regular, with_name


@pytest.mark.parametrize(
    ("hint", "named"),
    [
        (
            "Restart it: llm-inspect daemon restart",
            "Restart it: llm-inspect daemon restart --name b",
        ),
        ("llm-inspect daemon stop --name b", "llm-inspect daemon stop --name b"),
        ("`llm-inspect daemon logs`, then", "`llm-inspect daemon logs --name b`, then"),
        ("see llm-inspect sessions list", "see llm-inspect sessions list --name b"),
        ("llm-inspect resume K", "llm-inspect resume --name b K"),
        ("llm-inspect run PROMPT", "llm-inspect run PROMPT"),
    ],
)
def test_hints_name_the_daemon(hint: str, named: str) -> None:
    assert with_name(hint, "b") == named
    assert with_name(hint, "default") == hint


def test_only_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="regular file"):
            read_regular(path)
