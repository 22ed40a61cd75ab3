"""Freed memory stays with the process: rows of a large vocabulary are made and freed every step.

By default the C library gives blocks of that size back to the system, and each new page costs a
fault: more than the arithmetic on it. Knows glibc; elsewhere nothing happens.
"""

import ctypes
import os
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
KEPT_BYTES: Final = 64 << 20
"""Free memory at the end of the heap beyond which it is given back."""
BLOCK_BYTES: Final = 16 << 20
"""Larger blocks, such as caches, are the system's again as soon as they are freed."""


def keep_freed_pages() -> bool:
    """Set it for this process, unless the user has set glibc's own variables; whether it is."""
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, BLOCK_BYTES) and mallopt(_TRIM_THRESHOLD, KEPT_BYTES))
