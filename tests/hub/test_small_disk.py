"""All of a daemon's state on a disk of 3 MB that is its own: R1, with a real full filesystem.

Where nothing may be mounted, a limit on the size of files stands for it in `test_disk`.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemons import PATIENCE_S

ROOT = Path(__file__).parents[2]
NAMESPACE = ("unshare", "--map-root-user", "--mount")
MOUNT = 'mount -t tmpfs -o size=3m none "$1"'


def can_mount(folder: Path) -> bool:
    """A filesystem of one's own is allowed here."""
    if shutil.which(NAMESPACE[0]) is None:
        return False
    words = [*NAMESPACE, "sh", "-c", MOUNT, "sh", str(folder)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.fault("R1")
def test_a_daemon_on_a_disk_that_is_full_loses_nothing_and_goes_on(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not can_mount(disk):
        pytest.skip("nothing may be mounted here; test_disk limits the size of files instead")
    script = f'{MOUNT} && exec "$2" -m tests.hub.small_disk "$1"'
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", script, "sh", str(disk), sys.executable],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 3,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    record_property("figure", done.stdout.strip())
