"""What `doctor` reads in the system's tables, on tables like those of other machines."""

from pathlib import Path

import pytest

from engine_daemon.doctor.limits import available, group_limit
from engine_daemon.doctor.mounts import Mount, mount_of, mounts
from engine_daemon.doctor.versions import meets

TABLE = r"""21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:40 / /people rw shared:2 - nfs4 nas:/people rw
31 30 8:2 / /people/me/a\040disk rw - xfs /dev/sdb rw
40 21 8:1 /tmp/systemd-private-ab-x.service-c/tmp /tmp rw - ext4 /dev/sda1 rw
41 21 0:50 / /mnt/far rw - fuse.sshfs me@box: rw
garbage
"""


def test_the_mount_table(tmp_path: Path) -> None:
    path = tmp_path / "mountinfo"
    path.write_text(TABLE)
    table = mounts(path)
    assert len(table) == 5
    assert table[2] == Mount(Path("/people/me/a disk"), "/", "xfs")
    assert [one.network for one in table] == [False, True, False, False, True]
    assert [one.private for one in table] == [False, False, False, True, False]
    assert mounts(tmp_path / "none") == []


def test_the_mount_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    table = [
        Mount(Path("/"), "/", "ext4"),
        Mount(tmp_path / "a", "/", "nfs"),
        Mount(tmp_path / "ab", "/", "xfs"),
    ]
    for folder, kind in (("a/x/y", "nfs"), ("link", "nfs"), ("abc", "ext4"), ("", "ext4")):
        mount = mount_of(tmp_path / folder, table)
        assert mount is not None
        assert mount.kind == kind
    over = Mount(Path("/"), "/", "overlay")
    assert mount_of(tmp_path, [*table[:1], over]) == over
    assert mount_of(tmp_path, []) is None


def test_control_groups(tmp_path: Path) -> None:
    own, root = tmp_path / "own", tmp_path / "cgroup"
    (root / "user" / "me").mkdir(parents=True)
    own.write_text("0::/user/me\n")
    assert group_limit(own, root) is None
    (root / "user" / "memory.max").write_text("1000000\n")
    (root / "user" / "me" / "memory.max").write_text("max\n")
    assert group_limit(own, root) == 1_000_000
    (root / "memory" / "a").mkdir(parents=True)
    (root / "memory" / "a" / "memory.limit_in_bytes").write_text("500\n")
    (root / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    own.write_text("3:cpu,memory:/a\n0::/user/me\n")
    assert group_limit(own, root) == 500
    assert group_limit(tmp_path / "none", root) is None


def test_memory(tmp_path: Path) -> None:
    table = tmp_path / "meminfo"
    table.write_text("MemTotal: 100 kB\nMemAvailable:   50 kB\n")
    assert available(table) == 51_200
    assert available(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("version", "bounds", "met"),
    [
        ("8.2.8", "==8.2.8", True),
        ("8.2.9", "==8.2.8", False),
        ("2.8.0+cpu", ">=2.8", True),
        ("2.7.9", ">=2.8", False),
        ("5.24.0", ">=5.24,<6", True),
        ("6.0", ">=5.24,<6", False),
        ("1.0", "", True),
        ("2026.11.19", ">=2024.11.6", True),
    ],
)
def test_bounds(version: str, bounds: str, met: bool) -> None:
    assert meets(version, bounds) is met
