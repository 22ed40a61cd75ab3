"""Options as given → what is asked of a daemon and of a session. Plain functions, no I/O but
for looking whether a model is a local path."""

import getpass
import os
import secrets
from pathlib import Path
from typing import Final, TypeVar

from engine_daemon.cli.options import Given
from engine_daemon.config import Asked
from engine_daemon.errors import InspectError
from engine_daemon.paths import host
from engine_daemon.protocol.commands import Open
from engine_daemon.protocol.values import PromptSpec, Sampler

DEFAULT_CANDIDATES: Final = 20
DRAWN_BITS: Final = 53
"""Of a seed that nobody gave: readers of JSON whose numbers are doubles have all of them."""
MOST_CONDITIONS: Final = 32
MOST_WATCHED: Final = 16
N = TypeVar("N", int, float)


def who(given: Given) -> str:
    """The name shown to others: `--as`, else user@host."""
    if given.who:
        return given.who
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{host()}"


def asked(given: Given, *, max_context: int | None = None) -> Asked:
    """What the command line asks of the daemon. `max_context` belongs to the daemon only where
    one is started by name; elsewhere it is the session's."""
    return Asked(
        engine=given.engine,
        model=None if given.model is None else _model(given.model),
        revision=given.revision,
        device=given.device,
        dtype=given.dtype,
        tp=given.tp,
        verify=True if given.verify else None,
        plain_engine=given.plain_engine or None,
        max_context=max_context,
        idle_exit_s=given.idle_exit,
        share=given.share,
        share_control=given.share_control,
    )


def _model(name: str) -> str:
    """A local model as an absolute path: the daemon has another working directory."""
    path = Path(name).expanduser()
    looks_local = name.startswith(("/", "./", "../", "~")) or name.endswith(".gguf")
    return str(path.absolute()) if looks_local or path.exists() else name


def sampler(given: Given) -> Sampler:
    """The sampler of a session; a seed is drawn where none was given."""
    filters = {"top_k": given.top_k, "top_p": given.top_p, "min_p": given.min_p}
    sampling = {"temperature": given.temperature, "seed": given.seed, **filters}
    asks_to_sample = any(value is not None for value in sampling.values())
    zero = given.temperature == 0
    greedy = given.greedy or zero or not asks_to_sample
    used = [f"--{name.replace('_', '-')}" for name, value in filters.items() if value is not None]
    if greedy and used:
        cause = "--greedy" if given.greedy else "--temperature 0"
        raise InspectError(
            f"{cause} and {' '.join(used)} exclude each other",
            "Greedy takes the best token as it is",
        )
    if given.greedy and given.temperature:
        raise InspectError("--greedy and --temperature exclude each other")
    neutral = Sampler()
    return Sampler(
        greedy=greedy,
        temperature=neutral.temperature if greedy else _or(given.temperature, neutral.temperature),
        top_k=_or(given.top_k, neutral.top_k),
        top_p=_or(given.top_p, neutral.top_p),
        min_p=_or(given.min_p, neutral.min_p),
        seed=secrets.randbits(DRAWN_BITS) if given.seed is None else given.seed,
        repetition_penalty=_or(given.repetition_penalty, neutral.repetition_penalty),
        presence_penalty=_or(given.presence_penalty, neutral.presence_penalty),
        frequency_penalty=_or(given.frequency_penalty, neutral.frequency_penalty),
    )


def _or(value: N | None, neutral: N) -> N:
    return neutral if value is None else value


def open_command(given: Given, prompt: PromptSpec, *, run: bool) -> Open:
    """The command that opens the session: running to its end, or to its first distribution."""
    return Open(
        prompt=prompt,
        sampler=sampler(given),
        candidates=given.candidates or DEFAULT_CANDIDATES,
        cache_mode="none" if given.no_kv_cache else "kv",
        max_steps=given.steps,
        limit_tokens=given.max_context,
        score_prompt=given.score_prompt,
        private=given.private,
        run_to=None if run and given.steps != 0 else 0,
        until=conditions(given),
        watch=watched(given),
        timeout_s=given.timeout,
    )


def conditions(given: Given) -> list[str]:
    """`--until` first, then `--stop` as conditions; ConditionError for one that is none."""
    if given.fail_on_until and not given.until:
        raise InspectError("--fail-on-until needs --until", "For example: --until 'entropy>3'")
    if not given.until and not given.stop:
        return []
    from engine_daemon.conditions.parser import parse  # 0.1 s: only for who has a condition
    from engine_daemon.conditions.quoting import quote

    sources = [*given.until, *(f"stop({quote(os.fsencode(text))})" for text in given.stop)]
    for source in sources:
        parse(source)
    if len(sources) > MOST_CONDITIONS:
        raise InspectError(f"a session has at most {MOST_CONDITIONS} conditions")
    return sources


def watched(given: Given) -> list[bytes]:
    """The texts of `--watch`."""
    if len(given.watch) > MOST_WATCHED:
        raise InspectError(f"--watch takes at most {MOST_WATCHED} tokens, not {len(given.watch)}")
    return [os.fsencode(text) for text in given.watch]
