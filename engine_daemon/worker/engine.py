"""What the sessions of a worker share. Knows no session."""

from dataclasses import dataclass, field

from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.worker.backends.base import Backend, Loaded
from engine_daemon.worker.kept_rows import KeptRows


@dataclass(frozen=True, slots=True)
class Engine:
    """What every session of a worker shares. `cache_bytes`: the budget of all caches."""

    backend: Backend
    loaded: Loaded
    table: PieceTable
    rows: KeptRows = field(default_factory=KeptRows)
    cache_bytes: int | None = None
