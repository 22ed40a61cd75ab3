"""Prompts on their way through the tokens process: asked, retried once, or given up.

Knows no socket of its own and nothing of sessions: whoever asks hands in what to do with the
answer.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from engine_daemon.protocol.commands import Message
from engine_daemon.protocol.values import PromptSpec
from engine_daemon.protocol.worker import Encode, Encoded

TEMPLATE_S: Final = 5.0
"""A chat template may run this long."""
TEXT_S_A_BYTE: Final = 60.0 / (8 * 1024 * 1024)
"""Tokenising may take this long on top: a text of the largest size is done well within it."""

Done = Callable[[Encoded], None]


@dataclass(slots=True)
class _Job:
    prompt: PromptSpec
    done: Done
    deadline: float
    tries: int = field(default=1)


class Encoder:
    """Open questions to the tokens process. `route` is its address, `ready`: a tokenizer is in."""

    def __init__(self, send: Callable[[str, Message], bool]) -> None:
        self._send = send
        self._jobs: dict[int, _Job] = {}
        self._next = 0
        self.route: bytes | None = None
        self.ready = False

    def encode(self, prompt: PromptSpec, done: Done) -> None:
        """Ask; `done` gets the answer, or a refusal in the same form."""
        self._next += 1
        self._jobs[self._next] = _Job(prompt, done, _deadline(prompt))
        self._send("tokens", Encode(ask=self._next, prompt=prompt))

    def encoded(self, answer: Encoded) -> None:
        """The tokens process answered."""
        job = self._jobs.pop(answer.ask, None)
        if job is not None:
            job.done(answer)

    def overdue(self, now: float) -> bool:
        """True when the oldest question is past its deadline; it is then given up."""
        late = [ask for ask, job in self._jobs.items() if now > job.deadline]
        for ask in late:
            job = self._jobs.pop(ask)
            what = "chat template" if job.prompt.template else "tokenizer"
            job.done(
                Encoded(
                    ask=ask,
                    code="too_slow",
                    message=f"the {what} took too long and was stopped",
                    hint="Use --raw, or another template",
                )
            )
        return bool(late)

    def lost(self) -> None:
        """The tokens process ended: what it was asked is asked again once, by `resume`."""
        self.route, self.ready = None, False

    def resume(self) -> None:
        """A new tokens process has its tokenizer: ask again what was asked before."""
        self.ready = True
        for ask, job in list(self._jobs.items()):
            if job.tries > 1:
                del self._jobs[ask]
                job.done(
                    Encoded(ask=ask, code="engine", message="this text ends the tokens process")
                )
                continue
            job.tries += 1
            job.deadline = _deadline(job.prompt)
            self._send("tokens", Encode(ask=ask, prompt=job.prompt))

    def fail(self, code: str, message: str) -> None:
        """Give up all questions."""
        jobs, self._jobs = self._jobs, {}
        for ask, job in jobs.items():
            job.done(Encoded(ask=ask, code=code, message=message))


def _deadline(prompt: PromptSpec) -> float:
    return time.monotonic() + TEMPLATE_S + len(prompt.text) * TEXT_S_A_BYTE
