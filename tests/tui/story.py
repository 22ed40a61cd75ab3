"""Sessions made by hand: packed events for views and panes.

Not an integration with anything: the real daemon is driven in tests/end_to_end.
"""

import math
from collections.abc import Sequence
from typing import Any, Self

from engine_daemon.protocol.codec import pack_event
from engine_daemon.protocol.events import (
    NO_OFFSET,
    Branched,
    Commanded,
    EngineStarted,
    Event,
    How,
    Opened,
    Predicted,
    PromptSet,
    SamplerSet,
    SessionSet,
    Stepped,
    StepStop,
    Stopped,
    Switched,
)
from engine_daemon.protocol.packing import pack_floats, pack_ints
from engine_daemon.protocol.state import EngineState, Place, SessionInfo, State, ViewerInfo
from engine_daemon.protocol.values import (
    CacheReport,
    Candidates,
    DroppedBy,
    ModelInfo,
    Sampler,
    StopReason,
    Watched,
    Work,
)

SESSION = "7K3M9QWX"
PROMPT = [
    (59, b"Kub"),
    (23385, b"ernetes"),
    (37491, b" pods"),
    (27781, b" are"),
    (359, b" sch"),
    (13831, b"eduled"),
    (411, b" by"),
    (260, b" the"),
]
FIRST = [
    (17472, b" Ku", 0.225),
    (3834, b" `", 0.121),
    (6498, b" container", 0.036),
    (7251, b" pod", 0.025),
    (4142, b" default", 0.020),
    (1507, b" operating", 0.017),
    (9129, b" scheduler", 0.016),
    (20941, b" cloud", 0.013),
    (2442, b" K", 0.012),
    (5147, b" system", 0.011),
    (198, b"\n", 0.009),
    (827, b" same", 0.008),
]
MODEL = ModelInfo(
    name="SmolLM2-135M-Instruct",
    architecture="LlamaForCausalLM",
    parameters=134_515_008,
    dtype="bf16",
    device="cpu",
    ranks=1,
    layers=30,
    layer_kinds={"full_attention": 30},
    vocabulary=49_152,
    context_length=8192,
    weights_bytes=269_030_016,
    weights_files=[],
    load_s=1.4,
)
Row = tuple[int, bytes, float]


def candidates(
    rows: Sequence[Row], *, chosen: int = 0, specials: Sequence[int] = (), sampled: bool = False
) -> Candidates:
    """The packed candidates of (id, piece, probability) rows; greedy keeps row `chosen` alone."""
    pieces = [piece for _, piece, _ in rows]
    kept = [sampled or k == chosen for k in range(len(rows))]
    return Candidates(
        ids=pack_ints("I", [i for i, _, _ in rows]),
        logit=pack_floats("f", [math.log(p) if p else -math.inf for _, _, p in rows]),
        final_logprob=pack_floats(
            "f",
            [
                (math.log(p) if sampled and p else 0.0) if keep else -math.inf
                for keep, (_, _, p) in zip(kept, rows, strict=True)
            ],
        ),
        dropped_by=bytes(DroppedBy.KEPT if keep else DroppedBy.GREEDY for keep in kept),
        special=bytes(i in specials for i, _, _ in rows),
        piece_len=pack_ints("H", [len(piece) for piece in pieces]),
        pieces=b"".join(pieces),
    )


class Story:
    """Writes a log: each method appends events as a hub would."""

    def __init__(self, prompt: Sequence[tuple[int, bytes]] = PROMPT, pause: bool = True) -> None:
        self.log: list[bytes] = []
        self.step = self.number = 0
        self._ends = {0: 0}
        self._prompt = list(prompt)
        self._t = 0
        self.add(
            Opened(
                **self._base(),
                format=1,
                session=SESSION,
                created_ns=1,
                host="box",
                name="default",
                tool="llm-inspect 0.1.0",
                title="",
            ),
            Commanded(**self._base(), op="open", who="ann@box", goal=0 if pause else None),
            SessionSet(
                **self._base(), candidates=20, cache_mode="kv", limit_tokens=8192, max_steps=None
            ),
            SamplerSet(**self._base(), sampler=Sampler()),
            EngineStarted(
                **self._base(),
                engine=1,
                backend="hf",
                synthetic=False,
                weights_id="w",
                tokenizer_id="t",
                eos_ids=[2],
                model=MODEL,
            ),
        )
        self.add(self._prompt_set())

    def _base(self) -> Any:
        """The fields of every event."""
        self._t += 1
        return {"t_ns": self._t, "wall_ns": self._t, "branch": self.number, "step": self.step}

    def add(self, *events: Event) -> None:
        """Append these."""
        self.log.extend(pack_event(event) for event in events)

    def add_limit(self, steps: int) -> Self:
        """At most so many steps."""
        self.add(
            SessionSet(
                **self._base(), candidates=20, cache_mode="kv", limit_tokens=8192, max_steps=steps
            )
        )
        return self

    def _prompt_set(self) -> PromptSet:
        pieces = [piece for _, piece in self._prompt]
        count = len(pieces)
        return PromptSet(
            **self._base(),
            text=b"".join(pieces),
            normalised=None,
            template=False,
            seed=0,
            warnings=[],
            tokenize_ms=0.2,
            ids=pack_ints("I", [i for i, _ in self._prompt]),
            special=bytes(count),
            added=bytes(count),
            starts=pack_ints("I", [NO_OFFSET] * count),
            ends=pack_ints("I", [NO_OFFSET] * count),
            piece_len=pack_ints("H", [len(piece) for piece in pieces]),
            pieces=b"".join(pieces),
        )

    def predict(
        self,
        rows: Sequence[Row] = FIRST,
        *,
        chosen: int = 0,
        specials: Sequence[int] = (),
        sampled: bool = False,
        ms: float = 13.1,
        after_pause: bool = False,
        watched: Watched | None = None,
    ) -> Self:
        """The distribution of the step that comes next."""
        position = len(self._prompt) + self.step
        self.add(
            Predicted(
                **self._base(),
                phase="prefill" if self.step == 0 else "decode",
                position=position,
                processed=position if self.step == 0 else 1,
                candidates=candidates(rows, chosen=chosen, specials=specials, sampled=sampled),
                ties_cut=False,
                entropy_bits=5.04,
                logsumexp=0.0,
                margin=rows[0][2] - (rows[1][2] if len(rows) > 1 else 0.0),
                tail_prob=max(1.0 - sum(p for _, _, p in rows), 0.0),
                forward_ms=ms,
                probe_ms=0.4,
                tokenize_ms=0.2 if self.step == 0 else 0.0,
                after_pause=after_pause,
                cache=CacheReport(
                    mode="kv",
                    tokens=position,
                    growing_bytes=position * 23_040,
                    fixed_bytes=0,
                    allocated_bytes=256 * 23_040,
                    capacity_tokens=256,
                    limit_tokens=8192,
                ),
                work=Work(flops=270_000_000 * position, bytes_moved=269_000_000),
                watched=watched,
            )
        )
        return self

    def pick(
        self,
        token_id: int,
        piece: bytes,
        prob: float,
        *,
        how: How = "greedy",
        rank: int = 1,
        special: bool = False,
        stop: StepStop | None = None,
        total: float = 14.0,
    ) -> Self:
        """The token of the step that comes next."""
        self.add(
            Stepped(
                **self._base(),
                id=token_id,
                piece=piece,
                special=special,
                logit=math.log(prob),
                final_logprob=0.0,
                rank=rank,
                how=how,
                draw=0.4131 if how == "sampled" else None,
                pick_ms=0.3,
                append_ms=0.1,
                total_ms=total,
                stop=stop,
            )
        )
        self.step += 1
        return self

    def command(self, op: str, goal: int | None = None) -> Self:
        """Somebody's command was accepted."""
        self.add(Commanded(**self._base(), op=op, who="ann@box", goal=goal))
        return self

    def branch(self, step: int) -> Self:
        """A branch leaves at this step; its distribution is there again."""
        self._ends[self.number] = self.step
        parent, self.number, self.step = self.number, len(self._ends), step
        self._ends[self.number] = step
        self.add(Branched(**self._base(), parent=parent))
        return self.predict()

    def switch(self, branch: int) -> Self:
        """Another branch is stood on."""
        self._ends[self.number] = self.step
        self.number, self.step = branch, self._ends[branch]
        self.add(Switched(**self._base()))
        return self

    def stop(self, reason: StopReason = "goal", pending: bool = True, message: str = "") -> Self:
        """The session stands."""
        self.add(Stopped(**self._base(), reason=reason, pending=pending, message=message))
        return self

    def stop_at(self, condition: int, source: str) -> Self:
        """A condition was true of the pending step."""
        self.add(
            Stopped(
                **self._base(),
                reason="condition",
                pending=True,
                condition=condition,
                source=source,
            )
        )
        return self

    def tokens(self, *pieces: tuple[bytes, float], ms: float = 13.0) -> Self:
        """Whole steps: each with its own distribution and the first row picked."""
        for piece, prob in pieces:
            row = (1000 + self.step, piece, prob)
            wobble = ms + 0.02 * self.step + (self.step * 7 % 5) * 0.3
            self.predict([row, (7, b" other", min(prob, 1 - prob) / 2)], ms=wobble)
            self.pick(row[0], piece, prob, total=wobble + 0.8)
        return self


def paused() -> Story:
    """Three steps done, the fourth pending."""
    story = Story().predict().stop()
    story.command("run_to", 1).pick(17472, b" Ku", 0.225)
    story.predict([(1, b"bern", 0.61), (2, b"be", 0.3)], ms=12.4).stop()
    story.command("run_to", 2).pick(1, b"bern", 0.61)
    story.predict([(3, b"etes", 0.97), (4, b"ete", 0.01)], ms=12.2).stop()
    story.command("run_to", 3).pick(3, b"etes", 0.97)
    rows = [(5, b" scheduler", 0.354), (6, b" control", 0.171), (8, b" API", 0.082)]
    rows += [(20 + k, b" word%d" % k, 0.03 / (k + 1)) for k in range(17)]
    return story.predict(rows, ms=12.9).stop()


def state(**engine: object) -> State:
    """A daemon with one session and two viewers."""
    known: dict[str, object] = {
        "word": "ready",
        "engine": 1,
        "model_name": "smollm2-135m",
        "model": MODEL,
    }
    return State(
        engine=EngineState(**(known | engine)),  # type: ignore[arg-type]
        sessions=[
            SessionInfo(
                session=SESSION,
                title="Kubernetes pods are scheduled by the",
                status="paused",
                place=Place(kind="pending", step=3),
                resident=True,
                head=10,
                created_ns=1,
            )
        ],
        viewers=[
            ViewerInfo(
                viewer=b"1",
                who="ann@box",
                client="tui 0.1.0",
                role="controller",
                sessions=[SESSION],
            ),
            ViewerInfo(
                viewer=b"2",
                who="bob@box",
                client="tui 0.1.0",
                role="controller",
                sessions=[SESSION],
            ),
        ],
    )
