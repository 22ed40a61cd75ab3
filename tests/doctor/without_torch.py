"""`python without_torch.py doctor …`: the command without the one area that imports torch.

A second and a half of every whole `doctor` is that import. All else is the command as it is: its
words, environment, areas, rows and exit code.
"""

import sys

import engine_daemon.cli.doctor
from engine_daemon.doctor import devices
from tui.cli import main

LOOKS = tuple(look for look in engine_daemon.cli.doctor.LOOKS if look is not devices.look)

if __name__ == "__main__":
    engine_daemon.cli.doctor.LOOKS = LOOKS  # type: ignore[misc]
    sys.exit(main())
