"""Which filesystem a folder lies on, as the kernel's mount table tells (proc(5), mountinfo)."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NETWORK: Final = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "ceph",
        "glusterfs",
        "lustre",
        "gpfs",
        "beegfs",
        "beegfs_nodev",
        "orangefs",
        "pvfs2",
        "ncpfs",
        "coda",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.ceph",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.gcsfuse",
        "fuse.juicefs",
        "wekafs",
        "panfs",
    ]
)
"""Types whose locks, sockets and speed are not those of a local disk."""
_TABLE: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """`root` is the folder of the filesystem that is seen at `point`."""

    point: Path
    root: str
    kind: str

    @property
    def network(self) -> bool:
        """It lies on another machine."""
        return self.kind in NETWORK

    @property
    def private(self) -> bool:
        """Somebody mounted a folder of its own here for us (systemd's PrivateTmp, pam_namespace):
        others who log in see another one."""
        return bool(
            re.search(r"/systemd-private-[^/]*/|tmp-inst|\.inst/|-polyinst", self.root + "/")
        )


def mounts(table: Path = _TABLE) -> list[Mount]:
    """The mount table, the last ones over the earlier; empty where there is none."""
    try:
        lines = table.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(" "), right.split(" ")
        if len(fields) >= 5 and kinds[0]:
            found.append(Mount(Path(_plain(fields[4])), _plain(fields[3]), kinds[0]))
    return found


def _plain(text: str) -> str:
    """`\\040` is a space there."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)


def mount_of(folder: Path, table: list[Mount]) -> Mount | None:
    """The mount that a folder, or the nearest one above that exists, lies on."""
    there = existing(folder)
    found = None
    for mount in table:
        nearer = found is None or len(mount.point.parts) >= len(found.point.parts)
        if nearer and there.is_relative_to(mount.point):
            found = mount
    return found


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above that is there; symbolic links followed."""
    for one in (folder, *folder.parents):
        try:
            return one.resolve(strict=True)
        except (OSError, RuntimeError):
            continue
    return Path("/")
