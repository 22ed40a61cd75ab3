"""Seconds that go on while the machine sleeps: for what may have become old meanwhile.

`time.monotonic` stands still then. Knows a clock.
"""

import time

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    """Since the machine was started, sleep included."""
    return time.clock_gettime(_BOOT)
