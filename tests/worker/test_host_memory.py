"""What the machine, control groups and limits let a process have, and who holds the rest."""

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from engine_daemon.worker.host_memory import Holder, Present, holder, holders, present

MEMINFO = (
    "MemTotal:       16384000 kB\nMemFree:  100 kB\nMemAvailable:    8192000 kB\nHugePages: 0\n"
)
AVAILABLE = 8_192_000 * 1024
MAIN = "import sys\nheld = bytearray(b'x') * {size}\nprint('there', flush=True)\nsys.stdin.read()"


@contextmanager
def running(*command: str | Path) -> Iterator[int]:
    """A process that says when it is there and then waits; its pid."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


def held(size: int, *words: str) -> AbstractContextManager[int]:
    """A process that holds so many bytes, with these words behind its program; its pid."""
    return running(sys.executable, "-c", MAIN.format(size=size), *words)


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def system(folder: Path, cgroup: str) -> tuple[Path, Path]:
    """A /proc and an empty tree of control groups."""
    write(folder / "proc/meminfo", MEMINFO)
    write(folder / "proc/self/cgroup", cgroup)
    return folder / "proc", folder / "cgroup"


def test_the_machine_itself() -> None:
    found = present()
    assert found is not None
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < found.bytes <= total


def test_without_limits_it_is_what_the_system_calls_available(tmp_path: Path) -> None:
    proc, groups = system(tmp_path, "0::/user.slice/x\n")
    assert present(proc, groups) == Present(AVAILABLE)
    write(groups / "user.slice/x/memory.max", "max\n")
    write(groups / "user.slice/x/memory.current", "5\n")
    assert present(proc, groups) == Present(AVAILABLE)


def test_nobody_says_anything(tmp_path: Path) -> None:
    assert present(tmp_path, tmp_path) is None


@pytest.mark.parametrize("where", ["user.slice/x", "user.slice", ""])
@pytest.mark.parametrize("mount", ["", "unified"])
def test_a_limit_of_version_2_anywhere_above(tmp_path: Path, where: str, mount: str) -> None:
    proc, groups = system(tmp_path, "12:cpu:/a\n0::/user.slice/x\n")
    write(groups / mount / where / "memory.max", "4000000000\n")
    write(groups / mount / where / "memory.current", "3000000000\n")
    stat = "anon 1\nactive_file 300000000\ninactive_file 400000000\nslab 9\n"
    write(groups / mount / where / "memory.stat", stat)
    assert present(proc, groups) == Present(1_700_000_000, "its control group")


def test_a_limit_of_version_1_as_a_container_sees_it(tmp_path: Path) -> None:
    """Its own group is mounted where outside all groups are."""
    proc, groups = system(tmp_path, "4:memory,hugetlb:/docker/abc\n0::/\n")
    write(groups / "memory/memory.limit_in_bytes", "2000000000\n")
    write(groups / "memory/memory.usage_in_bytes", "2500000000\n")
    write(groups / "memory/memory.stat", "cache 7\nactive_file 1\ntotal_inactive_file 600000000\n")
    assert present(proc, groups) == Present(100_000_000, "its control group")
    write(groups / "memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert present(proc, groups) == Present(AVAILABLE)


def test_a_limit_of_the_shell() -> None:
    script = (
        "import resource\n"
        "from engine_daemon.worker.host_memory import present\n"
        "resource.setrlimit(resource.RLIMIT_AS, (600_000_000, -1))\n"
        "found = present()\n"
        "print(found.limit, found.bytes)"
    )
    words = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    assert words[:2] == ["ulimit", "-v"]
    assert 0 < int(words[2]) < 600_000_000


def test_who_holds_memory() -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    with held(300_000_000) as large, held(100_000_000) as small:
        by_pid = {found.pid: found for found in holders()}
        order = [found.pid for found in holders() if found.pid in (large, small)]
    assert order == [large, small]
    assert 300_000_000 <= by_pid[large].bytes < 340_000_000
    assert by_pid[large].user == user
    assert os.getpid() not in by_pid


def test_a_daemon_is_named_and_other_names_are_made_harmless(tmp_path: Path) -> None:
    (tmp_path / "conn.json").write_text(json.dumps({"name": "work"}))
    words = ("-m", "engine_daemon.worker", "--socket")
    with (
        held(1, *words, f"{tmp_path}/e.sock") as ours,
        held(1, *words, f"{tmp_path}/nowhere/e.sock") as lost,
    ):
        assert holder(ours, 7).name == "daemon work"
        assert holder(lost, 7).name == "a daemon"
    hostile = tmp_path / "\x1b[31m\u202e"
    hostile.symlink_to("/bin/sh")
    with running(hostile, "-c", "echo there; read nothing") as pid:
        assert holder(pid, 7).name == "␛[31m<U+202E>"
    script = tmp_path / "train.py"
    script.write_text(MAIN.format(size=1))
    with running(sys.executable, script) as pid:
        assert holder(pid, 7).name.endswith(" train.py")
    assert str(holder(pid, 2 * 10**9)) == f"a process of ? (pid {pid}) 2.0 GB"


def test_sizes_in_words() -> None:
    assert str(Holder(7, "ana", "python", 10**9)) == "python of ana (pid 7) 1.0 GB"
