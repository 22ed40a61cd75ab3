"""Everything that *is* now, as the hub tells it: pushed on change, last one wins, never logged.

What *happened* is in `events`.
"""

from typing import Literal

import msgspec

from engine_daemon.protocol.values import ModelInfo, Record
from engine_daemon.protocol.viewing import Role

EngineWord = Literal["starting", "loading", "ready", "busy", "stuck", "dead"]
SessionWord = Literal["waiting", "paused", "running", "ended", "closed"]
PlaceWord = Literal["waiting", "prefill", "pending", "ended"]


class Place(Record, frozen=True, kw_only=True):
    """Where a session stands: `pending(step)`, `prefill(done of total)`, `ended(step, reason)`."""

    kind: PlaceWord = "waiting"
    branch: int = 0
    step: int = 0
    reason: str = ""
    done: int = 0
    total: int = 0


class WeightsCheck(Record, frozen=True, kw_only=True):
    """The parameters in memory as last summed. `same` as right after loading; `wall_ns` when,
    `ms` how long it took; `running` while a check is under way."""

    checksum: str
    same: bool
    wall_ns: int
    ms: float
    running: bool = False


class Stuck(Record, frozen=True, kw_only=True):
    """Why an engine that lives is called stuck, and which `ranks` it is.

    `halted`: the process is stopped (SIGSTOP, a debugger); `silent`: it gives no sign of life;
    `busy`: what it is at (`phase`) takes far longer than it should. `for_s`: for so long.
    """

    ranks: list[int]
    why: Literal["halted", "silent", "busy"]
    phase: str
    for_s: int


class EngineDetails(Record, frozen=True, kw_only=True):
    """What else there is to know of the worker. `pids` of its ranks, in order; `notes` of
    `EngineStarted`. `again`: it is dead and is being started again."""

    pids: list[int] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    stuck: Stuck | None = None
    again: bool = False


class EngineState(Record, frozen=True, kw_only=True):
    """The worker, as last heard. `done`/`total` are bytes of `stage` (0 = not known); `pid` is that
    of rank 0."""

    word: EngineWord
    engine: int = 0
    backend: str = "hf"
    model_name: str = ""
    stage: str = ""
    done: int = 0
    total: int = 0
    model: ModelInfo | None = None
    synthetic: bool = False
    code: str = ""
    message: str = ""
    hint: str = ""
    pid: int | None = None
    weights: WeightsCheck | None = None
    details: EngineDetails = EngineDetails()


class SessionInfo(Record, frozen=True, kw_only=True):
    """One open session. `trouble`: why its log cannot be written; then nothing more is in it than
    was shown, and the session stands. `holder`: who has the lease `lease_no`; None: it is free.
    `pausing`: somebody asked it to pause and it does not stand yet. `stop`: the reason of the stop
    at which it stands (`Stopped.reason`); empty where none was logged."""

    session: str
    title: str
    status: SessionWord
    place: Place
    resident: bool
    head: int
    created_ns: int
    other_model: bool = False
    lease_no: int = 0
    holder: str | None = None
    trouble: str = ""
    pausing: bool = False
    stop: str = ""


class ViewerInfo(Record, frozen=True, kw_only=True):
    """One attached viewer; `lag` in events. `sessions` it follows, `holds`: whose lease it has.

    `uid` of its process where that is not the daemon's own user.
    """

    viewer: bytes
    who: str
    client: str
    role: Role
    lag: int = 0
    sessions: list[str] = msgspec.field(default_factory=list)
    holds: list[str] = msgspec.field(default_factory=list)
    uid: int | None = None

    @property
    def sign(self) -> str:
        """What tells it from others of its name: `#` and the beginning of its id."""
        return f"#{self.viewer.hex()[:4]}"


class State(Record, frozen=True, kw_only=True):
    """The whole of it. `idle_exit_s` None = never leaves by itself."""

    engine: EngineState
    sessions: list[SessionInfo]
    viewers: list[ViewerInfo]
    idle_exit_s: float | None = None
