"""How the C library gets memory from the system: in huge pages, and what is freed stays.

Weights in pages of 4 KB are 65,000 places to look up for every 256 MB read; rows of a large
vocabulary are made and freed every step, and each new page costs a fault. Knows glibc and Linux;
elsewhere nothing happens.
"""

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_TUNABLES: Final = "GLIBC_TUNABLES"
_HUGE: Final = "glibc.malloc.hugetlb=1"
_SYSTEMS_CHOICE: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
KEPT_BYTES: Final = 64 << 20
"""Free memory at the end of the heap beyond which it is given back."""
BLOCK_BYTES: Final = 16 << 20
"""Larger blocks, such as caches, are the system's again as soon as they are freed."""


def in_huge_pages() -> None:
    """Begin this program anew, once, with what glibc reads only at the beginning: where the system
    gives huge pages to those that ask, and the user has set nothing of glibc's own."""
    if os.environ.get(_TUNABLES) == _HUGE:
        del os.environ[_TUNABLES]  # read by now; not for programs that this one starts
        return
    if _users_own() or not _on_request():
        return
    os.environ[_TUNABLES] = _HUGE
    with suppress(OSError):
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    del os.environ[_TUNABLES]  # it could not; then without


def keep_freed_pages() -> bool:
    """Set it for this process, unless the user has set glibc's own variables; whether it is."""
    if _users_own():
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, BLOCK_BYTES) and mallopt(_TRIM_THRESHOLD, KEPT_BYTES))


def _users_own() -> bool:
    return any(name.startswith("MALLOC_") or name == _TUNABLES for name in os.environ)


def _on_request() -> bool:
    try:
        return "[madvise]" in _SYSTEMS_CHOICE.read_text(encoding="ascii")
    except (OSError, ValueError):
        return False
