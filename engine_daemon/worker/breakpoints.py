"""The stop conditions of one session, asked before a step is told: the stop lands on that step.

Knows decode sessions and `conditions`; not when a session goes or what is told.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from engine_daemon.protocol.packing import unpack_floats, unpack_ints
from engine_daemon.protocol.values import ConditionSpec, ConditionValue, Stops
from engine_daemon.worker.decode import DecodeSession
from engine_daemon.worker.engine import Engine
from engine_daemon.worker.outcomes import Append, Prediction

if TYPE_CHECKING:  # the parser is loaded when there is a condition: it costs 0.1 s
    from engine_daemon.conditions.evaluating import Evaluator
    from engine_daemon.conditions.median import RunningMedian

_TOO_SLOW: Final = "the regular expression took over 20 ms; the condition is off"


@dataclass(frozen=True, slots=True)
class Fired:
    """A condition that became true, and what its atoms had."""

    number: int
    source: str
    values: dict[str, ConditionValue]


@dataclass(frozen=True, slots=True)
class Disabled:
    """A condition that was given up."""

    number: int
    message: str


@dataclass(frozen=True, slots=True)
class _Armed:
    number: int
    source: str
    committed: bool
    evaluator: "Evaluator"


class Breakpoints:
    """Conditions by number. `disabled` collects those given up, for whoever tells it."""

    def __init__(self, engine: Engine, session: DecodeSession, stops: Stops) -> None:
        from engine_daemon.conditions.median import RunningMedian

        self.disabled: list[Disabled] = []
        self._engine = engine
        self._session = session
        self._armed: list[_Armed] = []
        self._times: RunningMedian = RunningMedian(unpack_floats("f", stops.total_ms))
        self.set(stops.conditions)

    def set(self, conditions: Iterable[ConditionSpec]) -> None:
        """These from here on; one that is in force already stays as it is."""
        known = {armed.number: armed for armed in self._armed}
        self._armed = []
        for spec in sorted(conditions, key=lambda spec: spec.number):
            armed = known.get(spec.number) or self._arm(spec)
            if armed is not None:
                self._armed.append(armed)

    def _arm(self, spec: ConditionSpec) -> _Armed | None:
        from engine_daemon.conditions.evaluating import Evaluator
        from engine_daemon.conditions.faults import ConditionError
        from engine_daemon.conditions.nodes import is_committed
        from engine_daemon.conditions.parser import parse

        ids = {literal.text: unpack_ints("I", literal.ids) for literal in spec.literals}
        try:
            condition = parse(spec.source)
            evaluator = Evaluator(condition, ids)
        except (ConditionError, KeyError) as error:
            self.disabled.append(Disabled(spec.number, f"it cannot be used: {error}"))
            return None
        return _Armed(spec.number, spec.source, is_committed(condition), evaluator)

    def at_pending(self, prediction: Prediction) -> Fired | None:
        """Asked with a distribution, before the pick."""
        if not self._armed:
            return None
        return self._ask(_At(self._engine, prediction), None)

    def after_append(self, prediction: Prediction, append: Append) -> Fired | None:
        """Asked once the token is in, with the distribution it was picked from."""
        fired = None
        if self._armed:
            at = _At(self._engine, prediction)
            fired = self._ask(at, _Picked(self._engine, self._session, at, append, self._times))
        self._times.add(append.total_ms)
        return fired

    def _ask(self, at: "_At", picked: "_Picked | None") -> Fired | None:
        from engine_daemon.conditions.evaluating import TooSlow

        for armed in list(self._armed):
            if armed.committed is (picked is None):
                continue
            try:
                values = armed.evaluator.holds(at, picked)
            except (TooSlow, MemoryError, RecursionError):
                self._armed.remove(armed)
                self.disabled.append(Disabled(armed.number, _TOO_SLOW))
                continue
            if values is not None:
                return Fired(armed.number, armed.source, values)
        return None


class _At:
    """A prediction as conditions see it."""

    def __init__(self, engine: Engine, prediction: Prediction) -> None:
        self._vocabulary = engine.loaded.model.vocabulary
        self._prediction = prediction
        self.eos_ids: Sequence[int] = engine.loaded.eos_ids
        self.step = prediction.step
        self.position = prediction.position

    @property
    def entropy(self) -> float:
        return self._prediction.look.report.entropy_bits

    @property
    def margin(self) -> float:
        return self._prediction.look.report.margin

    @property
    def cache(self) -> float | None:
        """Positions held, in percent of what the session may grow to."""
        held, limit = self._prediction.cache.tokens, self._prediction.cache.limit_tokens
        return None if held is None or not limit else 100 * held / limit

    def raw_prob(self, logit: float) -> float:
        return math.exp(min(logit - self._prediction.look.report.logsumexp, 0.0))

    def prob_of(self, ids: Sequence[int]) -> float:
        evaluation = self._prediction.look.evaluation
        known = [i for i in ids if 0 <= i < self._vocabulary]
        return math.fsum(self.raw_prob(evaluation.forced(i).logit) for i in known)


class _Picked:
    """An appended token as conditions see it."""

    def __init__(
        self,
        engine: Engine,
        session: DecodeSession,
        at: _At,
        append: Append,
        times: "RunningMedian",
    ) -> None:
        self._table = engine.table
        self._session = session
        self._at = at
        self._times = times
        self.id = append.choice.id
        self.rank = append.choice.rank
        self.piece = append.piece
        self.special = append.special
        self.ms = append.total_ms
        self._logit = append.choice.logit

    @property
    def prob(self) -> float:
        return self._at.raw_prob(self._logit)

    @property
    def median_ms(self) -> float | None:
        from engine_daemon.conditions.evaluating import MEDIAN_FROM

        return self._times.value() if len(self._times) >= MEDIAN_FROM else None

    def tail(self, least: int) -> bytes:
        """From the end backwards, only as far as is asked for."""
        path, parts, size = self._session.path, [], 0
        for place in range(len(path) - 1, len(path) - 1 - self._session.step, -1):
            if size >= least:
                break
            if not self._table.is_special(path[place]):
                parts.append(self._table.piece(path[place]))
                size += len(parts[-1])
        return b"".join(reversed(parts))
