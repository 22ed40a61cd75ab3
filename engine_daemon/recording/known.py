"""The last-known values of a session, apart from its steps.

Knows what is kept, not what changes it.
"""

from collections import deque
from typing import Final

from engine_daemon.protocol.events import (
    Commanded,
    ConditionAdded,
    ConditionRejected,
    EngineLost,
    EngineStarted,
    Noted,
    Opened,
    Prefilled,
    PromptRejected,
    PromptScored,
    PromptSet,
    SessionSet,
    Stopped,
    WatchSet,
)
from engine_daemon.protocol.image import KnownImage
from engine_daemon.protocol.packing import unpack_floats, unpack_ints
from engine_daemon.protocol.prompt_tokens import PromptTokens
from engine_daemon.recording.paths import Paths

ACTS_KEPT: Final = 64
FAULTS: Final = ("error", "no_memory", "engine_lost", "disk_full")
"""Reasons to stop that nobody asked for; they come with a message."""
_SAME: Final = (
    *(
        "opened",
        "title",
        "engine",
        "lost",
        "limits",
        "prompt",
        "rejected",
        "goal",
        "closed",
        "strays",
    ),
    *("complete", "next_condition", "refused", "watch", "scored", "measuring", "seq_engine"),
)
"""Fields that an image holds as they are."""


class Known(Paths):
    """What `Columns` describes, and the image of it."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: Opened | None = None
        self.title = ""
        self.engine: EngineStarted | None = None
        self.seq_engine = 0
        self.lost: EngineLost | None = None
        self.limits: SessionSet | None = None
        self.prompt: PromptSet | None = None
        self.rejected: PromptRejected | None = None
        self.goal: int | None = None
        self.closed = False
        self.strays = 0
        self.complete = True
        self.conditions: dict[int, ConditionAdded] = {}
        self.disabled: dict[int, str] = {}
        self.next_condition = 1
        self.refused: ConditionRejected | None = None
        self.watch: WatchSet | None = None
        self.fired: list[tuple[int, int]] = []
        self.fired_on: list[int] = []
        self.notes: list[Noted] = []
        self.acts: deque[Commanded | Noted] = deque(maxlen=ACTS_KEPT)
        self.failed: dict[int, str] = {}
        self._running = False
        self._predicted_once = False
        self._prompt_tokens: PromptTokens | None = None
        self.scored: PromptScored | None = None
        self._prompt_scores: tuple[list[float], list[int]] = ([], [])
        self.naive: list[tuple[int, float]] = []
        self.measuring = 0
        self._read: Prefilled | None = None

    def known(self) -> KnownImage:
        """All of it, packed; later changes do not reach the image."""
        return KnownImage(
            conditions=list(self.conditions.values()),
            disabled=dict(self.disabled),
            fired=list(self.fired),
            fired_on=list(self.fired_on),
            notes=list(self.notes),
            acts=list(self.acts),
            failed=dict(self.failed),
            naive=list(self.naive),
            running=self._running,
            predicted_once=self._predicted_once,
            read=self._read,
            **{name: getattr(self, name) for name in _SAME},
        )

    def recall(self, image: KnownImage) -> None:
        """Take over what an image holds."""
        for name in _SAME:
            setattr(self, name, getattr(image, name))
        self.conditions = {one.number: one for one in image.conditions}
        self.disabled = dict(image.disabled)
        self.fired = list(image.fired)
        self.fired_on = list(image.fired_on) or [self.branch] * len(self.fired)
        self.notes = list(image.notes)
        self.acts, self.failed = deque(image.acts, maxlen=ACTS_KEPT), dict(image.failed)
        self.naive = list(image.naive)
        self._running, self._predicted_once = image.running, image.predicted_once
        self._read, self._prompt_tokens = image.read, None
        self.score(image.scored)

    def fired_here(self) -> list[tuple[int, int]]:
        """`fired`, of the path that is stood on."""
        pairs = zip(self.fired, self.fired_on, strict=True)
        return [fired for fired, branch in pairs if self.on_path(branch, fired[0])]

    def note_failed(self, stopped: Stopped) -> None:
        """An error that nobody asked for ended the last command: it belongs to that one."""
        if stopped.reason not in FAULTS or not stopped.message:
            return
        commands = [act for act in self.acts if isinstance(act, Commanded)]
        caused = [act for act in commands if act.cause == stopped.cause is not None]
        for act in (caused or commands)[-1:]:
            kept = {act.t_ns for act in commands}
            self.failed = {t_ns: why for t_ns, why in self.failed.items() if t_ns in kept}
            self.failed[act.t_ns] = stopped.message

    def score(self, scored: PromptScored | None) -> None:
        """How likely the prompt was."""
        self.scored = scored
        if scored is not None:
            self._prompt_scores = (
                unpack_floats("f", scored.logprobs),
                unpack_ints("I", scored.ranks),
            )
