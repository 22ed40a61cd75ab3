"""Questions on their way through the tokens process: asked, retried once, or given up.

Knows no socket of its own and nothing of sessions: whoever asks hands in what to do with the
answer.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine_daemon.lookup import halted_words, is_halted
from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.values import PromptSpec
from engine_daemon.protocol.worker import Encode, Encoded, Resolve, Resolved

TEMPLATE_S: Final = 5.0
"""A chat template may run this long."""
TEXT_S_A_BYTE: Final = 60.0 / (8 * 1024 * 1024)
"""Tokenising may take this long on top: a text of the largest size is done well within it."""
_AGAIN: Final = "Try again: the tokenizer is started anew"

Done = Callable[[Encoded], None]
ResolvedDone = Callable[[Resolved], None]


@dataclass(slots=True)
class _EncodeJob:
    prompt: PromptSpec
    done: Done
    tries: int = field(default=1)

    @property
    def limit_s(self) -> float:
        size = len(self.prompt.text) + sum(len(m.content) for m in self.prompt.messages or ())
        return TEMPLATE_S + size * TEXT_S_A_BYTE

    @property
    def what(self) -> str:
        return "chat template" if self.prompt.template else "tokenizer"

    @property
    def instead(self) -> str:
        return "Use --raw, or another template" if self.prompt.template else _AGAIN

    def question(self, ask: int) -> Message:
        return Encode(ask=ask, prompt=self.prompt)

    def refuse(self, ask: int, code: str, message: str, hint: str = "") -> None:
        self.done(Encoded(ask=ask, code=code, message=message, hint=hint))


@dataclass(slots=True)
class _ResolveJob:
    sources: list[str]
    watch: list[bytes]
    done: ResolvedDone
    tries: int = field(default=1)
    limit_s: float = TEMPLATE_S
    what: str = "tokenizer"
    instead: str = _AGAIN

    def question(self, ask: int) -> Message:
        return Resolve(ask=ask, sources=self.sources, watch=self.watch)

    def refuse(self, ask: int, code: str, message: str, hint: str = "") -> None:
        self.done(Resolved(ask=ask, code=code, message=message, hint=hint))


_Job = _EncodeJob | _ResolveJob


class Encoder:
    """Open questions to the tokens process, which answers them in turn: only the oldest one's time
    runs. `route` is its address, `ready`: a tokenizer is in."""

    def __init__(self, send: Callable[[str, Message], bool]) -> None:
        self._send = send
        self._jobs: dict[int, _Job] = {}
        self._next = 0
        self._since = 0.0
        self.route: bytes | None = None
        self.ready = False

    def encode(self, prompt: PromptSpec, done: Done) -> None:
        """Ask; `done` gets the answer, or a refusal in the same form."""
        self._ask(_EncodeJob(prompt, done))

    def resolve(self, sources: Sequence[str], watch: Sequence[bytes], done: ResolvedDone) -> None:
        """Conditions and texts → tokens; `done` as above."""
        self._ask(_ResolveJob(list(sources), list(watch), done))

    def _ask(self, job: _Job) -> None:
        if not self._jobs:
            self._since = time.monotonic()
        self._next += 1
        self._jobs[self._next] = job
        self._send("tokens", job.question(self._next))

    def encoded(self, answer: Encoded) -> None:
        """The tokens process answered."""
        job, self._since = self._jobs.pop(answer.ask, None), time.monotonic()
        if isinstance(job, _EncodeJob):
            job.done(answer)

    def resolved(self, answer: Resolved) -> None:
        """The tokens process answered."""
        job, self._since = self._jobs.pop(answer.ask, None), time.monotonic()
        if isinstance(job, _ResolveJob):
            job.done(answer)

    def overdue(self, now: float, pid: int) -> bool:
        """True when the oldest question is past its deadline and process `pid` is to be ended for
        it; it is then given up. A halted process is left alone: it did nothing wrong."""
        ask, job = next(iter(self._jobs.items()), (0, None))
        if job is None or now - self._since <= job.limit_s:
            return False
        if is_halted(pid):  # all of them: the next one's time must not begin in the past
            message = f"the tokens process is halted (SIGSTOP or a debugger), pid {pid}"
            self.fail("engine", message, f"{halted_words(pid)}; then try again")
            return False
        del self._jobs[ask]
        job.refuse(ask, "too_slow", f"the {job.what} took too long and was stopped", job.instead)
        return True

    def lost(self) -> None:
        """The tokens process ended: what it was asked is asked again once, by `resume`."""
        self.route, self.ready = None, False

    def resume(self) -> None:
        """A new tokens process has its tokenizer: ask again what was asked before."""
        self.ready, self._since = True, time.monotonic()
        for ask, job in list(self._jobs.items()):
            if job.tries > 1:
                del self._jobs[ask]
                job.refuse(ask, "engine", "this text ends the tokens process")
                continue
            job.tries += 1
            self._send("tokens", job.question(ask))

    def fail(self, code: str, message: str, hint: str = "") -> None:
        """Give up all questions."""
        jobs, self._jobs = self._jobs, {}
        for ask, job in jobs.items():
            job.refuse(ask, code, message, hint)
