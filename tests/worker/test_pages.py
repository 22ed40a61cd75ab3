"""Memory in huge pages where the system gives them on request, and freed pages that stay; unless
the user has a say in it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine_daemon.worker.pages import keep_freed_pages

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
CHOICE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
PROGRAM = """
import os, sys
from engine_daemon.worker.pages import in_huge_pages
print("begins", sys.argv[1:], flush=True)
in_huge_pages()
room = bytearray(64 << 20)
print("left", os.environ.get("GLIBC_TUNABLES"))
with open("/proc/self/smaps_rollup") as lines:
    print("huge", *(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages")))
"""


def _told(tmp_path: Path, **own: str) -> list[str]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    env.pop("GLIBC_TUNABLES", None)
    made = subprocess.run(
        [sys.executable, str(program), "one", "two"],
        env=env | own,
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout.splitlines()


def test_a_program_begins_anew_once_with_its_arguments(tmp_path: Path) -> None:
    if "[madvise]" not in CHOICE.read_text():
        pytest.skip("the system gives huge pages to all or to none")
    *begun, left, huge = _told(tmp_path)
    assert begun == ["begins ['one', 'two']"] * 2
    assert left == "left None"  # programs that it starts are none of its business
    assert int(huge.split()[1]) >= 60 << 10


@pytest.mark.parametrize(
    "own", [{"GLIBC_TUNABLES": "glibc.malloc.tcache_count=7"}, {"MALLOC_ARENA_MAX": "2"}], ids=str
)
def test_what_the_user_has_set_stays(tmp_path: Path, own: dict[str, str]) -> None:
    begun, left, _ = _told(tmp_path, **own)
    assert begun == "begins ['one', 'two']"
    assert left == f"left {own.get('GLIBC_TUNABLES')}"


def test_the_users_settings_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not keep_freed_pages()
