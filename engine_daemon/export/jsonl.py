"""A session as JSON lines (CONTRACT section 3), for `run --json` and `export --to jsonl`.

Knows the keys and what each is computed from; neither where the events come from nor where the
lines go.
"""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from engine_daemon.export.objects import (
    Line,
    chosen,
    condition,
    distribution,
    model,
    number,
    prompt_token,
    rest,
    scored,
    timing,
)
from engine_daemon.export.text import final_text
from engine_daemon.protocol.codec import VERSION, WireError, unpack_event
from engine_daemon.protocol.events import (
    EngineStarted,
    Event,
    Noted,
    Predicted,
    PromptRejected,
    PromptScored,
    PromptSet,
    Stepped,
    Stopped,
    UnknownEvent,
)
from engine_daemon.protocol.values import ModelInfo
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.reader import Recording
from engine_daemon.recording.rows import NO_ID, Flag, Rows

DoneReason = Literal["eos", "length", "context", "condition", "user", "timeout"]
_FAULTS: Final = ("no_memory", "error", "engine_lost", "disk_full")
_KEPT_REASONS: Final[dict[str, DoneReason]] = {
    "eos": "eos",
    "length": "length",
    "context": "context",
    "condition": "condition",
    "timeout": "timeout",
}


def to_bytes(line: Line) -> bytes:
    """One line of output, with its newline."""
    return msgspec.json.encode(line) + b"\n"


def export(recording: Recording) -> Iterator[Line]:
    """All lines of a recording; steps that lost one of their events are left out."""
    lines = JsonLines()
    for seq, packed in recording.events():
        lines.columns.skip(seq)
        try:
            yield from lines.feed(seq, unpack_event(packed))
        except WireError:
            lines.columns.skip(seq + 1)
    yield from lines.ending()


def chunks(recording: Recording) -> Iterator[bytes]:
    """The same as bytes, a line each: those of `run --json` where that ran."""
    return map(to_bytes, export(recording))


class JsonLines:
    """Makes the lines of one session from its events, in order.

    `columns` is the fold they come from; nobody else may feed it. `only`: the one branch to tell
    of; without it all of them, in log order, and the end is that of the branch stood on.
    """

    def __init__(self, only: int | None = None) -> None:
        self.columns = Columns()
        self._only = only
        self._model: ModelInfo | None = None

    def feed(self, seq: int, event: Event | UnknownEvent) -> list[Line]:
        """The lines that this event completes: `ready`, `prompt`, `prompt_scored`, `step` or
        `error`; of a whole session also `note`.

        Raises GapError and WireError as `Columns.fold` does.
        """
        predicted, rows = self.columns.pending, len(self.columns)
        self.columns.fold(seq, event)
        match event:
            case EngineStarted():
                return self._ready(event)
            case PromptSet():
                return [self._prompt(event)]
            case PromptScored():
                logprobs, ranks = self.columns.prompt_scores
                return [scored(logprobs, ranks)]
            case PromptRejected():
                return [error_line(event.code, event.message, event.hint)]
            case Noted() if self._only is None:
                return [self._note(event)]
            case Stepped() if self._only not in (None, event.branch):
                return []
            case Stepped() if predicted is not None and self._joined(rows):
                return [self._step(predicted, event)]
            case _:
                return []

    def pending_line(self) -> Line | None:
        """The distribution at the head, of which nothing is picked; None when there is none."""
        predicted = self.columns.end_of(self._branch).pending
        if predicted is None:
            return None
        return {
            "event": "pending",
            **self._place(predicted),
            **distribution(predicted),
            "timing": timing(predicted, None),
            **rest(predicted, None),
        }

    def done_line(self, reason: DoneReason, pending: bool, fired: Line | None = None) -> Line:
        """The last line. `pending`: it stands at a distribution, else at its last step."""
        rows = self._rows
        steps = len(rows)
        return {
            "event": "done",
            "session": self._session,
            "branch": self._branch,
            "reason": reason,
            "condition": fired,
            "at": {"step": steps if pending else max(steps - 1, 0), "pending": pending},
            "steps": steps,
            "text": final_text(rows.contributed()),
            "ids": [token for token in rows.ids if token != NO_ID],
        }

    def stopped_lines(self, stopped: Stopped) -> list[Line]:
        """How a session that is over ends: `pending` where that belongs, then `done` or `error`.

        A goal that was reached and a pause are an end only because somebody closes: `user`. After
        a committed condition a distribution exists too, but the stop is at the step.
        """
        if stopped.reason in _FAULTS:
            return [error_line(stopped.reason, stopped.message or _said(stopped), "")]
        reason = _KEPT_REASONS.get(stopped.reason, "user")
        if stopped.reason == "goal" and self._at_max_steps():
            reason = "length"
        at_last_step = not stopped.pending or reason == self.columns.end_of(self._branch).last_stop
        line = None if at_last_step else self.pending_line()
        done = self.done_line(reason, line is not None, condition(stopped))
        return [*([line] if line else []), done]

    def ending(self) -> list[Line]:
        """What comes after the last event of a recording.

        A session that is not over ends with `pending`, without `done`.
        """
        columns = self.columns
        if columns.rejected is not None:
            return []
        stop = columns.end_of(self._branch).stop
        over = columns.closed or columns.status == "ended"
        if stop is not None and (over or stop.reason in _FAULTS):
            return self.stopped_lines(stop)
        line = self.pending_line()
        lines = [line] if line else []
        return [*lines, self.done_line("user", line is not None)] if over else lines

    # One line each ----------------------------------------------------------------------------

    @property
    def _branch(self) -> int:
        return self.columns.branch if self._only is None else self._only

    @property
    def _rows(self) -> Rows:
        return self.columns.path(self._branch)

    @property
    def _session(self) -> str:
        return self.columns.opened.session if self.columns.opened else ""

    def _joined(self, rows: int) -> bool:
        """The event just folded made a row, and both its events are there."""
        return len(self.columns) > rows and not self.columns.flags[rows] & Flag.LOST

    def _at_max_steps(self) -> bool:
        limits = self.columns.limits
        return limits is not None and limits.max_steps == len(self._rows)

    def _ready(self, event: EngineStarted) -> list[Line]:
        """Again after a restart only where another engine, device or dtype serves the session."""
        before, self._model = self._model, msgspec.structs.replace(event.model, load_s=0.0)
        if self._model == before:
            return []
        return [
            {
                "event": "ready",
                "model": model(event.model),
                "engine": event.backend,
                "protocol": VERSION,
                "warnings": event.notes,
            }
        ]

    def _prompt(self, event: PromptSet) -> Line:
        return {
            "event": "prompt",
            "session": self._session,
            "text": final_text([event.text]),
            "normalised": None if event.normalised is None else final_text([event.normalised]),
            "tokens": [prompt_token(token) for token in self.columns.prompt_tokens],
            "template": event.template,
            "seed": event.seed or self.columns.sampler.seed,
            "warnings": event.warnings,
            "tokenize_ms": number(event.tokenize_ms),
        }

    def _note(self, event: Noted) -> Line:
        return {
            "event": "note",
            "session": self._session,
            "branch": event.branch,
            "step": event.step,
            "who": event.who,
            "text": event.text,
        }

    def _step(self, predicted: Predicted, stepped: Stepped) -> Line:
        return {
            "event": "step",
            **self._place(predicted),
            "chosen": chosen(predicted, stepped),
            **distribution(predicted),
            "timing": timing(predicted, stepped),
            **rest(predicted, stepped),
        }

    def _place(self, predicted: Predicted) -> Line:
        return {
            "session": self._session,
            "branch": predicted.branch,
            "step": predicted.step,
            "position": predicted.position,
            "phase": predicted.phase,
            "processed": predicted.processed,
        }


def error_line(code: str, message: str, hint: str) -> Line:
    """The last line when something went wrong."""
    return {"event": "error", "code": code, "message": message, "hint": hint}


def _said(stopped: Stopped) -> str:
    if stopped.reason == "no_memory" and stopped.need_bytes is not None:
        need, have = stopped.need_bytes, stopped.have_bytes
        return f"memory does not suffice: {need} bytes needed, {have} free"
    return {
        "no_memory": "memory does not suffice",
        "engine_lost": "the engine died",
        "disk_full": "the recording cannot be written",
    }.get(stopped.reason, "the engine stopped with an error")
