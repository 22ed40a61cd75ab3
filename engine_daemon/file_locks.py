"""Who holds a lock on a file, as the system's table says.

Reads `/proc` (proc_locks(5)); takes no lock itself, which could keep another from taking it.
"""

import os
from pathlib import Path
from typing import Final

TABLE: Final = Path("/proc/locks")


def holders(path: Path) -> list[int]:
    """The processes that hold an flock on it; empty where the system does not tell."""
    try:
        name = _name(path)
        table = TABLE.read_text("ascii").splitlines()
    except (OSError, ValueError):
        return []
    rows = [line.split() for line in table if "->" not in line]  # the others wait
    return [int(row[4]) for row in rows if len(row) > 5 and row[1] == "FLOCK" and row[5] == name]


def _name(path: Path) -> str:
    """What the table calls a file: `MAJOR:MINOR:INODE`, the first two in hex.

    They are the file system's own, as its mount has them: `stat` says others for a subvolume of
    btrfs and for layers of overlayfs.
    """
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        info = os.fstat(fd)
        lines = Path(f"/proc/self/fdinfo/{fd}").read_text("ascii").splitlines()
    finally:
        os.close(fd)
    facts = {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
    major, minor = _device(facts.get("mnt_id", "")) or (
        os.major(info.st_dev),
        os.minor(info.st_dev),
    )
    return f"{major:02x}:{minor:02x}:{facts.get('ino', info.st_ino)}"  # `ino` since Linux 5.14


def _device(mount: str) -> tuple[int, int] | None:
    """Of the mount of this number (proc_pid_mountinfo(5)); None for one that is not seen here."""
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        number, _, device, *_ = line.decode("ascii", "replace").split()
        if number == mount:
            major, minor = map(int, device.split(":"))
            return major, minor
    return None
