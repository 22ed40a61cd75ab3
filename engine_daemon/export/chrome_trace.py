"""A recording as a Chrome trace (chrome://tracing, Perfetto): every stage of every step as a bar.

Durations are those measured; where a bar stands is derived: a stage ends when its event was made.
One track a stage, counters for cache and entropy, a mark for everything somebody did. Knows events.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from engine_daemon.characters import Visible
from engine_daemon.export.objects import number
from engine_daemon.export.text import readable
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.codec import WireError, unpack_event
from engine_daemon.recording.reader import Recording
from engine_daemon.recording.rows import exp

Mark = dict[str, object]
"""One entry of `traceEvents`."""

PID: Final = 1
TRACKS: Final = ("commands", "tokenize", "forward", "probe", "pick", "append")
"""Threads of the trace, numbered from 1."""
_VISIBLE: Final = Visible()


def chunks(recording: Recording) -> Iterator[bytes]:
    """The trace as one JSON object, ASCII only, an event a line."""
    trace, first = _Trace(), True
    yield b'{"displayTimeUnit":"ms","traceEvents":[\n'
    for seq, packed in recording.events():
        try:
            event = unpack_event(packed)
        except WireError:
            continue
        if isinstance(event, ev.UnknownEvent):
            continue
        for mark in trace.marks(seq, event):
            try:
                made = json.dumps(mark, allow_nan=False)
            except ValueError:  # a time beyond all numbers, of a broken recording
                continue
            yield (b"" if first else b",\n") + made.encode()
            first = False
    yield b'\n],"otherData":' + json.dumps(trace.about).encode() + b"}\n"


class _Trace:
    """Makes the entries of one session, event by event."""

    def __init__(self) -> None:
        self.about: dict[str, str] = {}
        self._clock = 0
        self._zero: int | None = None
        self._read_ms = 0.0
        self._process = "llm-inspect"

    def marks(self, seq: int, event: ev.Event) -> list[Mark]:
        """What this event shows as."""
        if self._zero is None or isinstance(event, ev.Opened | ev.Reopened):
            # A monotonic clock begins anew with the machine: the wall clock joins the pieces.
            self._clock = event.wall_ns - event.t_ns
        if isinstance(event, ev.EngineLost | ev.Reopened | ev.Branched | ev.Switched):
            self._read_ms = 0.0  # what was read in chunks is read again
        if self._zero is None:
            self._zero = event.t_ns + self._clock
            return [*_names(self._process), *self._of(seq, event)]
        return self._of(seq, event)

    def _us(self, t_ns: int) -> float:
        assert self._zero is not None
        return (t_ns + self._clock - self._zero) / 1000

    def _of(self, seq: int, event: ev.Event) -> list[Mark]:
        match event:
            case ev.Opened():
                self.about |= {"session": event.session, "tool": event.tool}
                return []
            case ev.EngineStarted():
                return self._engine(event)
            case ev.PromptSet():
                end = self._us(event.t_ns)
                args: Mark = {"tokens": len(event.ids) // 4, "seq": seq}
                return [self._bar("tokenize", "prompt", end, event.tokenize_ms, args)]
            case ev.Prefilled():
                self._read_ms += event.forward_ms
                args = {"done": event.done, "total": event.total, "seq": seq}
                end = self._us(event.t_ns)
                return [self._bar("forward", "prefill chunk", end, event.forward_ms, args)]
            case ev.Predicted():
                return self._predicted(seq, event)
            case ev.Stepped():
                return self._stepped(seq, event)
            case _:
                said = _said(event)
                return [self._instant(said, event.t_ns)] if said else []

    def _engine(self, event: ev.EngineStarted) -> list[Mark]:
        model = event.model
        self.about |= {"model": _safe(model.name), "dtype": model.dtype, "device": model.device}
        self.about["engine"] = event.backend + (" (synthetic)" if event.synthetic else "")
        name = f"llm-inspect · {_safe(model.name)} · {model.dtype} · {model.device}"
        return [
            _meta("process_name", 0, {"name": name}),
            self._instant(f"engine {event.backend} started", event.t_ns),
        ]

    def _predicted(self, seq: int, event: ev.Predicted) -> list[Mark]:
        """Forward and probe. The times of a prompt that was read in chunks hold all of them."""
        end = self._us(event.t_ns)
        last_ms = max(event.forward_ms - self._read_ms, 0.0)
        self._read_ms = 0.0
        args: Mark = {
            "step": event.step,
            "branch": event.branch,
            "position": event.position,
            "processed": event.processed,
            "waited_ms": number(event.waited_ms),
            "after_pause": event.after_pause,
            "seq": seq,
        }
        if event.restored is not None:
            args["restored"] = event.restored.method
        forward_end = end - event.probe_ms * 1000
        name = f"{event.phase} {event.step}"
        cache = {
            "growing": event.cache.growing_bytes or 0,
            "fixed": event.cache.fixed_bytes or 0,
        }
        return [
            self._bar("forward", name, forward_end, last_ms, args),
            self._bar("probe", f"probe {event.step}", end, event.probe_ms, {"seq": seq}),
            self._counter("cache bytes", end, cache),
            self._counter("entropy bits", end, {"bits": number(event.entropy_bits) or 0.0}),
        ]

    def _stepped(self, seq: int, event: ev.Stepped) -> list[Mark]:
        end = self._us(event.t_ns)
        name = _safe(readable(event.piece))
        args: Mark = {
            "step": event.step,
            "branch": event.branch,
            "id": event.id,
            "text": name,
            "rank": event.rank,
            "how": event.how,
            "final_prob": number(exp(event.final_logprob)),
            "seq": seq,
        }
        picked = end - event.append_ms * 1000
        return [
            self._bar("pick", name, picked, event.pick_ms, args),
            self._bar("append", f"append {event.step}", end, event.append_ms, {"seq": seq}),
        ]

    # Entries ----------------------------------------------------------------------------------

    def _bar(self, track: str, name: str, end_us: float, ms: float, args: Mark) -> Mark:
        """A stage that ended then; one whose time is not known has none."""
        us = (number(ms) or 0.0) * 1000
        place = {"ph": "X", "pid": PID, "tid": TRACKS.index(track) + 1, "cat": track}
        return {"name": name, "ts": max(end_us - us, 0.0), "dur": us, **place, "args": args}

    def _counter(self, name: str, ts: float, values: Mapping[str, float]) -> Mark:
        return {"name": name, "ph": "C", "ts": max(ts, 0.0), "pid": PID, "tid": 0, "args": values}

    def _instant(self, name: str, t_ns: int) -> Mark:
        ts = max(self._us(t_ns), 0.0)
        return {"name": name, "ph": "i", "ts": ts, "pid": PID, "tid": 1, "s": "p", "cat": "said"}


def _said(event: ev.Event) -> str:
    """A few words for what happened beside steps; empty for what needs none."""
    match event:
        case ev.Commanded():
            goal = "" if event.goal is None else f" {event.goal}"
            return _safe(f"{event.op}{goal} by {event.who}")
        case ev.Stopped():
            why = f" {event.condition}: {event.source}" if event.condition is not None else ""
            return _safe(f"stopped: {event.reason}{why}")
        case ev.EngineLost():
            return _safe(f"engine lost {event.message}".rstrip())
        case ev.Branched():
            return f"branch {event.branch} leaves {event.parent} at step {event.step}"
        case ev.Switched():
            return f"to branch {event.branch}"
        case ev.CacheReleased():
            return f"cache released: {event.bytes} bytes ({event.why})"
        case ev.Closed():
            return _safe(f"closed by {event.by}")
        case ev.Reopened():
            return "opened again"
        case _:
            return ""


def _names(process: str) -> list[Mark]:
    """The tracks have names, and an order."""
    named = [_meta("process_name", 0, {"name": process})]
    for tid, track in enumerate(TRACKS, 1):
        named.append(_meta("thread_name", tid, {"name": track}))
        named.append(_meta("thread_sort_index", tid, {"sort_index": tid}))
    return named


def _meta(name: str, tid: int, args: Mark) -> Mark:
    return {"name": name, "ph": "M", "ts": 0, "pid": PID, "tid": tid, "args": args}


def _safe(text: str) -> str:
    """A viewer of traces is not ours: no control character reaches it."""
    return text.translate(_VISIBLE)
