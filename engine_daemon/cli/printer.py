"""What `run` writes to standard output: JSON lines, or the bytes of the continuation.

Writing happens off the loop, so that a reader that is slow never keeps an interrupt waiting.
Knows streams; not when a run is over.
"""

import asyncio
import json
import math
import os
import sys
from typing import Final, Protocol

from engine_daemon.cli.output import TerminalText, give_up_stdout, say, unwritable
from engine_daemon.errors import InspectError
from engine_daemon.export.jsonl import error_line, to_bytes
from engine_daemon.export.objects import Line
from engine_daemon.export.text import readable
from engine_daemon.protocol.events import (
    EngineStarted,
    Event,
    Predicted,
    PromptScored,
    PromptSet,
    Stepped,
    UnknownEvent,
)
from engine_daemon.protocol.packing import unpack_floats
from engine_daemon.recording.rows import exp

_NAMED: Final = 5
"""Candidates named where nothing is picked."""


class StdoutClosed(Exception):
    """Standard output takes no more: nobody reads it, or (`failure`) it cannot be written."""

    def __init__(self, failure: InspectError | None) -> None:
        super().__init__()
        self.failure = failure


class Printer(Protocol):
    """Takes what happened, in order; `flush` writes it."""

    def line(self, line: Line) -> None:
        """One line of CONTRACT section 3."""
        ...

    def event(self, event: Event | UnknownEvent) -> None:
        """One event of the log."""
        ...

    def error(self, error: InspectError) -> None:
        """The run failed; written at once."""
        ...

    def aside(self) -> None:
        """Something is said on standard error next."""
        ...

    def end(self) -> None:
        """Nothing follows."""
        ...

    async def flush(self) -> None:
        """Write what was taken; StdoutClosed once when it cannot be."""
        ...


class Stdout:
    """Standard output as bytes; after it was closed everything goes nowhere."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self.terminal = sys.stdout.isatty()
        self._buffer = bytearray()
        self._closed = False

    def add(self, data: bytes) -> None:
        """To be written at the next flush."""
        if not self._closed:
            self._buffer += data

    async def flush(self) -> None:
        """Write everything; raises StdoutClosed the first time that fails."""
        if self._buffer:
            await asyncio.to_thread(self.write)

    def write(self) -> None:
        """The same, here and now."""
        data = bytes(self._buffer)
        self._buffer.clear()
        try:
            while data:
                data = data[os.write(sys.stdout.fileno(), data) :]
        except OSError as error:
            self._closed = True
            give_up_stdout()
            unread = isinstance(error, BrokenPipeError)
            raise StdoutClosed(None if unread else unwritable(error)) from None


class JsonPrinter:
    """One JSON object a line. On a terminal everything but ASCII is escaped."""

    def __init__(self) -> None:
        self._out = Stdout()

    def line(self, line: Line) -> None:
        """Take one line."""
        encoded = to_bytes(line)
        if self._out.terminal:
            encoded = json.dumps(json.loads(encoded)).encode() + b"\n"
        self._out.add(encoded)

    def event(self, event: Event | UnknownEvent) -> None:
        """Nothing: the lines say it."""

    def error(self, error: InspectError) -> None:
        """The last line."""
        self.line(error_line(error.code, error.message, error.hint))
        try:
            self._out.write()
        except StdoutClosed:
            return

    def aside(self) -> None:
        """Lines are whole."""

    def end(self) -> None:
        """Nothing to add."""

    async def flush(self) -> None:
        """Write what was taken."""
        await self._out.flush()


class TextPrinter:
    """The bytes of the continuation; on a terminal as safe text that ends its line."""

    def __init__(self, *, echo: bool, loads: bool) -> None:
        """`loads`: this command has the model loaded, so how that went is to be said here."""
        self._out = Stdout()
        self._echo = echo
        self._loads = loads
        self._text = TerminalText()
        self._open_line = False
        self._first: Predicted | None = None

    def line(self, line: Line) -> None:
        """Where nothing was picked at all: what could have been. Else the events say it."""
        if line["event"] == "pending" and self._first is not None:
            say(f"nothing picked; the first candidates: {_candidates(self._first)}")

    def event(self, event: Event | UnknownEvent) -> None:
        """The prompt and the tokens, as bytes."""
        match event:
            case Predicted(step=0):
                self._first = event
            case Stepped():
                self._first = None
        match event:
            case EngineStarted() if self._loads:
                for note in event.notes:
                    say(f"note: {note}")
            case PromptSet():
                for warning in event.warnings:
                    say(f"note: {warning}")
                if self._echo:
                    self._add(event.text)
            case PromptScored():
                say(scored_words(event))
            case Stepped(special=False):
                self._add(event.piece)
            case _:
                pass

    def _add(self, piece: bytes, *, final: bool = False) -> None:
        if self._out.terminal:
            text = self._text.feed(piece, final=final)
            encoding = sys.stdout.encoding or "utf-8"
            piece = text.encode(encoding, "backslashreplace")
        if piece:
            self._open_line = not piece.endswith(b"\n")
            self._out.add(piece)

    def error(self, error: InspectError) -> None:
        """Standard error says it; here only the line ends."""
        self.end()
        try:
            self._out.write()
        except StdoutClosed:
            return

    def aside(self) -> None:
        """On a terminal, what is said gets a line of its own."""
        if self._out.terminal and self._open_line:
            self._out.add(b"\n")
            self._open_line = False

    def end(self) -> None:
        """On a terminal, end the line."""
        if self._out.terminal:
            self._add(b"", final=True)
            if self._open_line:
                self._add(b"\n")

    async def flush(self) -> None:
        """Write what was taken."""
        await self._out.flush()


def _candidates(predicted: Predicted) -> str:
    rows = predicted.candidates.rows()[:_NAMED]
    shares = (exp(row.logit - predicted.logsumexp) for row in rows)
    named = zip(rows, shares, strict=True)
    return ", ".join(f"{readable(row.piece)!r} {share * 100:.1f} %" for row, share in named)


def scored_words(scored: PromptScored) -> str:
    """What `--score-prompt` found, as a whole: which token was how likely is in the JSON lines."""
    bits = [-x / math.log(2) for x in unpack_floats("f", scored.logprobs) if not math.isnan(x)]
    if not bits:
        return "score of the prompt: a single token has none; nothing comes before it"
    total = math.fsum(bits)
    return (
        f"score of the prompt: {total:.1f} bits over {len(bits)} tokens,"
        f" {total / len(bits):.2f} a token; --json lists them"
    )
