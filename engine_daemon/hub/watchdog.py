"""Is the worker stuck: stopped, silent, or at something for far longer than that takes?

Only tells; nothing is ever killed here. A rank that moves again is not stuck any more. Knows no
sockets; time is handed in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from engine_daemon.lookup import halted_words, process_state
from engine_daemon.protocol.state import EngineState, Stuck
from engine_daemon.protocol.worker import Alive

TIMES: Final = 10
"""An operation may take so many times what others of its kind took."""
FIRST_TIMES: Final = 20
"""… and one of which nothing is known, or a pause in loading, so many times the patience."""
HALTED_S: Final = 3.0
"""A process that the system says is stopped is no riddle; a debugger looks in for less."""
LEAST_QUIET_S: Final = 5.0
"""A sign of life comes each second; some of them may be late."""
STALL_S: Final = 2.0
"""When the hub itself did not turn for so long, that time is nobody's."""


@dataclass(slots=True)
class _Rank:
    pid: int
    heard: float
    alive: Alive | None = None
    halted: float | None = None


class Watchdog:
    """Watches the ranks of one start of the worker. `patience_s`: without a sign of life, or within
    an operation, a rank is stuck after so long."""

    def __init__(self, patience_s: float, state_of: Callable[[int], str] = process_state) -> None:
        self.stuck: Stuck | None = None
        self._patience = patience_s
        self._state_of = state_of
        self._ranks: list[_Rank] = []
        self._looked: float | None = None
        self._logged: Stuck | None = None

    def started(self, pids: Sequence[int], now: float) -> None:
        """Other processes from now on; none: the worker has ended."""
        self._ranks = [_Rank(pid, now) for pid in pids]
        self.stuck = self._logged = None

    def news(self) -> str | None:
        """A line for the log: each finding once, again when it lasts twice as long, and its end."""
        before, found = self._logged, self.stuck
        if before is not None and found is not None:
            same = (before.why, before.ranks) == (found.why, found.ranks)
            if same and found.for_s < 2 * before.for_s:
                return None
        self._logged = found
        if found is not None:
            return words(found, len(self._ranks))
        if before is not None:
            return f"the engine goes on; it had stood for {before.for_s} s or more"
        return None

    def heard(self, alive: Alive, now: float) -> None:
        """A sign of life."""
        if alive.rank < len(self._ranks) and self._ranks[alive.rank].pid == alive.pid:
            rank = self._ranks[alive.rank]
            rank.alive, rank.heard = alive, now

    def check(self, now: float) -> bool:
        """Look at all of them; True when the finding is another one than before."""
        self._give_back_stall(now)
        before, self.stuck = self.stuck, self._finding(now)
        return self.stuck != before

    def _give_back_stall(self, now: float) -> None:
        stalled = 0.0 if self._looked is None else now - self._looked
        self._looked = now
        if stalled <= STALL_S:
            return
        for rank in self._ranks:
            rank.heard += stalled
            if rank.halted is not None:
                rank.halted += stalled

    def _finding(self, now: float) -> Stuck | None:
        """One that is stopped explains why others wait for it: the plainest cause is named."""
        halted = {n: self._halted(rank, now) for n, rank in enumerate(self._ranks)}
        if found := _over(halted, min(HALTED_S, self._patience)):
            return Stuck(ranks=list(found), why="halted", phase="", for_s=int(max(found.values())))
        stuck = self._silent(now) or self._busy(now)
        stopped = {n: s for n, s in halted.items() if self._ranks[n].halted is not None}
        if stuck is None or not stopped:
            return stuck
        return Stuck(ranks=list(stopped), why="halted", phase="", for_s=int(max(stopped.values())))

    def _silent(self, now: float) -> Stuck | None:
        silent = {n: now - rank.heard for n, rank in enumerate(self._ranks)}
        found = {n: s for n, s in silent.items() if s > self._quiet(self._ranks[n])}
        if not found:
            return None
        return Stuck(ranks=list(found), why="silent", phase="", for_s=int(max(found.values())))

    def _halted(self, rank: _Rank, now: float) -> float:
        """For how long the system has said so."""
        if self._state_of(rank.pid) not in ("T", "t"):
            rank.halted = None
            return 0.0
        rank.halted = now if rank.halted is None else rank.halted
        return now - rank.halted

    def _quiet(self, rank: _Rank) -> float:
        """How long it may say nothing: what is imported while loading may hold everything up."""
        loads = rank.alive is None or rank.alive.phase == "loading"
        return max(LEAST_QUIET_S, self._patience * (FIRST_TIMES if loads else 1))

    def _busy(self, now: float) -> Stuck | None:
        over = {}
        for number, rank in enumerate(self._ranks):
            alive = rank.alive
            if alive is None or alive.phase in ("idle", "paused"):
                continue
            spent = alive.for_s + now - rank.heard
            if spent > self._limit(alive):
                over[number] = spent, alive.phase
        if not over:
            return None
        spent, phase = max(over.values())
        return Stuck(ranks=list(over), why="busy", phase=phase, for_s=int(spent))

    def _limit(self, alive: Alive) -> float:
        if alive.expected_s is None:
            return self._patience * FIRST_TIMES
        return max(self._patience, TIMES * alive.expected_s)


class TokensWatch:
    """Watches the tokens process until its tokenizer is in: nothing can be asked of it before, and
    later each question tells. `pid` None: there is nothing to watch."""

    def __init__(self, state_of: Callable[[int], str] = process_state) -> None:
        self._state_of = state_of
        self._halted: tuple[int, float] | None = None
        self._found: tuple[int, int] | None = None
        self._logged: int | None = None

    def check(self, pid: int | None, now: float) -> bool:
        """Look at it; True when the finding is another one than before."""
        before, self._found = self._found, self._finding(pid, now)
        return self._found != before

    def news(self) -> str | None:
        """A line for the log, once for each process."""
        if self._found is None or self._logged == self._found[0]:
            return None
        self._logged = self._found[0]
        return self._words(self._found)

    def _finding(self, pid: int | None, now: float) -> tuple[int, int] | None:
        if pid is None or self._state_of(pid) not in ("T", "t"):
            self._halted = None
            return None
        if self._halted is None or self._halted[0] != pid:
            self._halted = pid, now
        spent = now - self._halted[1]
        return (pid, int(spent)) if spent >= HALTED_S else None

    def _words(self, found: tuple[int, int]) -> str:
        return f"the tokens process is halted (SIGSTOP), for {found[1]} s now"

    def shown(self, engine: EngineState) -> EngineState:
        """The engine's state, with what was found."""
        if self._found is None or engine.word in ("dead", "stuck"):
            return engine
        hint = f"{halted_words(self._found[0])}, llm-inspect daemon restart ends it"
        return replace(
            engine, word="stuck", code="stuck", message=self._words(self._found), hint=hint
        )


def _over(seconds: dict[int, float], limit: float) -> dict[int, float]:
    return {rank: spent for rank, spent in seconds.items() if spent >= limit > 0}


def words(stuck: Stuck, ranks: int) -> str:
    """What is the matter, in a line; `ranks`: how many there are."""
    several = len(stuck.ranks) > 1
    numbers = " and ".join(map(str, stuck.ranks))
    who = "the engine" if ranks == 1 else f"rank{'s' * several} {numbers}"
    match stuck.why:
        case "halted":
            return f"{who} {'are' if several else 'is'} halted (SIGSTOP), for {stuck.for_s} s now"
        case "silent":
            return f"no sign of life of {who} for {stuck.for_s} s"
        case "busy":
            what = {"decode": "a step", "prefill": "reading a prompt", "loading": "loading"}
            doing = what.get(stuck.phase, f"one {stuck.phase}")
            return f"{who}: {doing} has taken {stuck.for_s} s and goes on"


def shown(engine: EngineState, stuck: Stuck | None) -> EngineState:
    """The engine's state, with what was found."""
    if stuck is None or engine.word == "dead":
        return engine
    pids = engine.details.pids
    goes_on = "llm-inspect daemon stacks tells where it is"
    if stuck.why == "halted":
        halted = " ".join(str(pids[rank]) for rank in stuck.ranks if rank < len(pids))
        goes_on = f"kill -CONT {halted} lets it go on"
    return replace(
        engine,
        word="stuck",
        code="stuck",
        message=words(stuck, len(pids)),
        hint=f"{goes_on}, llm-inspect daemon restart ends it",
        details=replace(engine.details, stuck=stuck),
    )
