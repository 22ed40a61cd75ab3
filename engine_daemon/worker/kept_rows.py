"""Logits rows of past steps, in host memory, one bounded ring for all sessions.

A row is found by what came before it: the session and its ids, so branches that share their
beginning share rows. Knows no torch, no branches and no sockets.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from engine_daemon.protocol.packing import pack_ints
from engine_daemon.worker.backends.base import Distribution
from engine_daemon.worker.host_memory import Present

DEFAULT_BYTES: Final = 512 * 1024 * 1024
_SHARE: Final = 10
"""Of host memory that is free, one part in so many, where that is less."""
Key = tuple[str, bytes]


def rows_limit(asked: int | None, found: Present | None) -> int:
    """Bytes that rows may take: as asked, else so much that a small machine has some left."""
    if asked is not None:
        return asked
    return DEFAULT_BYTES if found is None else min(DEFAULT_BYTES, found.bytes // _SHARE)


class PathKey:
    """The name of the row after a growing sequence of ids: a digest, at the cost of the new id."""

    def __init__(self, session: str, ids: Sequence[int]) -> None:
        self._session = session
        self._hash = hashlib.blake2b(pack_ints("I", ids), digest_size=16)

    def append(self, token_id: int) -> None:
        """One id more."""
        self._hash.update(pack_ints("I", [token_id]))

    @property
    def key(self) -> Key:
        """The name now."""
        return self._session, self._hash.digest()


class KeptRows:
    """The ring: the oldest rows make room."""

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.limit = DEFAULT_BYTES if limit_bytes is None else limit_bytes
        self.bytes = 0
        self._rows: OrderedDict[Key, tuple[Distribution, int]] = OrderedDict()

    def keep(self, key: Key, distribution: Distribution) -> None:
        """Hold a row; one of the same name is replaced. Not every distribution can be kept."""
        kept = distribution.kept()
        if kept is None:
            return
        row, size = kept
        self._forget(key)
        if size > self.limit:
            return
        self._rows[key] = row, size
        self.bytes += size
        while self.bytes > self.limit:
            self._forget(next(iter(self._rows)))

    def get(self, key: Key) -> Distribution | None:
        """The row, or None when it is gone."""
        found = self._rows.get(key)
        return None if found is None else found[0]

    def drop(self, session: str) -> None:
        """The session is closed."""
        for key in [key for key in self._rows if key[0] == session]:
            self._forget(key)

    def _forget(self, key: Key) -> None:
        found = self._rows.pop(key, None)
        if found is not None:
            self.bytes -= found[1]

    def __len__(self) -> int:
        return len(self._rows)
