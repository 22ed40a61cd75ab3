"""A deterministic engine without torch or weights: made-up logits over the built-in vocabulary.

Synthetic, and says so. What it pretends is a function of the seed and the ids alone, so a
continuation equals a fresh run. Knows nothing of sessions, sockets or text.
"""

import hashlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.synthetic import EOS_ID
from engine_daemon.protocol.values import CacheReport, ModelInfo, Sampler, Work
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.backends.base import (
    Back,
    Choice,
    Forward,
    Loaded,
    NoMemoryError,
    ProgressFn,
    Report,
    Scored,
    SessionCache,
)
from engine_daemon.worker.common import common
from engine_daemon.worker.reference_sampling import Filtered, filtered, has_penalties
from engine_daemon.worker.script import Script, parse_script
from engine_daemon.worker.script_rows import ROWS, Row, RowTable

_LOGIT_BYTES: Final = 8
_FIRST_CAPACITY: Final = 256
_EVENTS_A_STEP: Final = 2
_SHORTEST_SLEEP_NS: Final = 2_000_000
"""At high rates a few steps come together: waking up costs more than a step."""
_CATCH_UP_NS: Final = 50_000_000
"""A step that comes later than this behind its time does not make the next ones hurry."""


@dataclass(slots=True)
class ScriptedCache:
    """Remembers how many positions were read and the last ids; holds no buffers."""

    mode: Literal["kv", "none"]
    kv_bytes: int
    tokens: int = 0
    ids: list[int] = field(default_factory=list)

    def report(self, limit_tokens: int | None, rows_bytes: int | None = None) -> CacheReport:
        """Bytes as the script pretends them: buffers that double."""
        held = self.tokens if self.mode == "kv" else 0
        capacity = _capacity(held) if held else 0
        return CacheReport(
            mode=self.mode,
            tokens=held,
            growing_bytes=held * self.kv_bytes,
            fixed_bytes=0,
            allocated_bytes=capacity * self.kv_bytes,
            capacity_tokens=capacity,
            limit_tokens=limit_tokens,
            rows_bytes=rows_bytes,
        )

    def go_back(self, ids: Sequence[int], *, park: bool = True) -> Back:
        """Forget what differs; the pretended cache can be cropped anywhere."""
        same = common(self.ids, ids)
        touched = same < self.tokens
        del self.ids[same:]
        self.tokens = same
        method: Literal["crop", "prefill"] = "crop" if same else "prefill"
        return Back(same, method if touched else None)

    def free(self) -> None:
        """Forget everything."""
        self.tokens = 0
        self.ids = []


class ScriptedEvaluation:
    """A row under a sampler."""

    def __init__(self, row: Row, sampler: Sampler, path: Sequence[int]) -> None:
        self._row = row
        self._greedy = sampler.is_greedy
        self._filtered: Filtered = filtered(row.logits, sampler, path)
        self._reports: dict[int, Report] = {}

    def report(self, k: int) -> Report:
        """Figures and the first `k` candidates."""
        if k not in self._reports:
            self._reports[k] = self._report(k)
        return self._reports[k]

    def _report(self, k: int) -> Report:
        row, after = self._row, self._filtered
        ids = row.order[:k]
        following = row.order[k : k + 1]
        return Report(
            ids=ids,
            logits=[row.logits[i] for i in ids],
            final_logprobs=[after.final_logprobs[i] for i in ids],
            dropped_by=[int(after.dropped_by[i]) for i in ids],
            ties_cut=bool(ids and following) and row.logits[ids[-1]] == row.logits[following[0]],
            entropy_bits=row.entropy_bits,
            logsumexp=row.logsumexp,
            margin=row.margin,
            tail_prob=row.tail_prob(k),
        )

    def pick(self, u: float) -> Choice:
        """The draw's token, or the greedy one."""
        if self._greedy:
            return self._choice(self._filtered.order[0], "greedy", None)
        token_id = self._filtered.pick(u)
        return self._choice(token_id, "sampled", u, self._filtered.before(token_id))

    def forced(self, token_id: int) -> Choice:
        """This id, with the values it has here."""
        return self._choice(token_id, "forced", None)

    def _choice(
        self,
        token_id: int,
        how: Literal["greedy", "sampled", "forced"],
        draw: float | None,
        before: float | None = None,
    ) -> Choice:
        return Choice(
            id=token_id,
            logit=self._row.logits[token_id],
            final_logprob=self._filtered.final_logprobs[token_id],
            rank=self._row.rank(token_id),
            how=how,
            draw=draw,
            before=before,
        )


_Key = tuple[bool, float, int, float, float]


class ScriptedDistribution:
    """A row of the table; evaluations that depend on nothing else are made once."""

    _MOST: Final = 8
    """Samplers remembered a row."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self._made: dict[_Key, ScriptedEvaluation] = {}

    def kept(self) -> "tuple[ScriptedDistribution, int]":
        """Itself: rows live in a table."""
        return self, _LOGIT_BYTES * len(self.row.logits)

    def evaluate(self, sampler: Sampler, path: Sequence[int]) -> ScriptedEvaluation:
        """Apply a sampler."""
        if has_penalties(sampler):
            return ScriptedEvaluation(self.row, sampler, path)
        key = (sampler.greedy, sampler.temperature, sampler.top_k, sampler.top_p, sampler.min_p)
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= self._MOST:
                self._made.clear()
            made = self._made[key] = ScriptedEvaluation(self.row, sampler, path)
        return made


class ScriptedBackend:
    """The engine named `scripted`."""

    name = "scripted"
    synthetic = True

    def __init__(self) -> None:
        self._script = Script()
        self._rows = RowTable(self._script)
        self._distributions: dict[int, ScriptedDistribution] = {}
        self._due_ns = 0

    def load(self, options: EngineOptions, model_dir: str, progress: ProgressFn) -> Loaded:
        """Take as long as the script says, then fail or be ready."""
        started = time.monotonic()
        script = self._script = parse_script(options.model)
        self._rows = RowTable(script)
        parameters = ROWS * script.vocab
        weights = parameters * _LOGIT_BYTES
        _pretend_loading(script.load_ms / 1000, weights, progress)
        if script.load_fail:
            raise InspectError(
                "the script says that loading fails",
                "Leave load_fail out of the model string",
                exit_code=Exit.MODEL,
                code="model",
            )
        return Loaded(
            model=ModelInfo(
                name="scripted",
                architecture="Scripted",
                parameters=parameters,
                dtype="fp64",
                device="cpu",
                ranks=1,
                layers=1,
                layer_kinds={"full_attention": 1},
                vocabulary=script.vocab,
                context_length=script.context,
                weights_bytes=weights,
                weights_files=[],
                load_s=time.monotonic() - started,
            ),
            weights_id=_weights_id(script),
            eos_ids=[EOS_ID],
        )

    def new_cache(self, mode: Literal["kv", "none"]) -> ScriptedCache:
        """An empty cache."""
        return ScriptedCache(mode, self._script.kv_bytes)

    def forward(self, ids: Sequence[int], cache: SessionCache) -> Forward:
        """Look up the row that belongs to the ids read so far, when its time has come."""
        assert isinstance(cache, ScriptedCache)
        started = time.monotonic_ns()
        position = cache.tokens + len(ids)
        if cache.tokens and len(ids) == 1:
            self._misbehave(position)
        cache.ids += ids
        cache.tokens = position
        distribution = self._distribution(cache.ids[-3:], position)
        self._wait()
        return Forward(
            distribution=distribution,
            ms=(time.monotonic_ns() - started) / 1e6,
            processed=len(ids) if cache.mode == "kv" else position,
        )

    def score(self, ids: Sequence[int], cache: SessionCache, targets: Sequence[int]) -> Scored:
        """As `forward`, with how likely each of `targets` was after the id at its place."""
        assert isinstance(cache, ScriptedCache)
        tail, logprobs, ranks = cache.ids[-3:], [], []
        for number, (token_id, target) in enumerate(zip(ids, targets, strict=False), 1):
            tail = [*tail, token_id][-3:]
            row = self._distribution(tail, cache.tokens + number).row
            logprobs.append(row.logits[target] - row.logsumexp)
            ranks.append(row.rank(target))
        return Scored(self.forward(ids, cache), logprobs, ranks)

    def work(self, processed: int, position: int) -> Work:
        """One row of logits a position, plus the pretended cache."""
        row = self._script.vocab
        return Work(
            flops=2 * row * processed,
            bytes_moved=_LOGIT_BYTES * row * processed + self._script.kv_bytes * position,
        )

    def close(self) -> None:
        """Nothing is held."""
        self._distributions = {}

    def _distribution(self, tail: Sequence[int], position: int) -> ScriptedDistribution:
        key = self._rows.key(tail, position)
        made = self._distributions.get(key)
        if made is None:
            made = self._distributions[key] = ScriptedDistribution(self._rows.row(key))
        return made

    def _wait(self) -> None:
        if not self._script.rate:
            return
        now = time.monotonic_ns()
        self._due_ns = max(self._due_ns, now - _CATCH_UP_NS) + _interval_ns(self._script.rate)
        if self._due_ns - now >= _SHORTEST_SLEEP_NS:
            time.sleep((self._due_ns - now) / 1e9)

    def _misbehave(self, position: int) -> None:
        script = self._script
        if position == script.no_memory_at:
            need = _capacity(position) * script.kv_bytes
            raise NoMemoryError("the script says that memory is full", need, need // 2)
        if position == script.error_at:
            raise RuntimeError("the script says that the forward fails")
        if position == script.crash_at:
            os.kill(os.getpid(), signal.SIGKILL)
        while position == script.hang_at:
            time.sleep(3600)


def _interval_ns(rate: int) -> int:
    return _EVENTS_A_STEP * 1_000_000_000 // rate


def _capacity(tokens: int) -> int:
    return max(_FIRST_CAPACITY, 1 << (tokens - 1).bit_length())


def _weights_id(script: Script) -> str:
    named = f"{script.seed},{script.vocab},{script.eos_at}"
    return "scripted-" + hashlib.sha256(named.encode()).hexdigest()[:16]


def _pretend_loading(seconds: float, total: int, progress: ProgressFn) -> None:
    started = time.monotonic()
    while (spent := time.monotonic() - started) < seconds:
        progress("load", int(total * spent / seconds), total)
        time.sleep(min(0.02, seconds - spent))
    progress("load", total, total)
