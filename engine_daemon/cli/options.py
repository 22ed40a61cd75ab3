"""The table of options: how each is written, what it may hold, which commands take it.

One row an option. Knows no command's behaviour.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Flag, auto
from typing import Final

from engine_daemon import options as check
from engine_daemon.paths import check_name


class Group(Flag):
    """Which commands an option belongs to; a command names the groups it takes."""

    NONE = 0
    COMMON = auto()
    """Everywhere."""
    NAME = auto()
    """Whatever speaks to a daemon."""
    PLACE = auto()
    """Whatever may start one."""
    LIMIT = auto()
    SESSION = auto()
    """Whatever opens a session."""
    RUN = auto()
    WHO = auto()
    ATTACH = auto()
    FORCE = auto()
    JSON = auto()
    NO_WAIT = auto()
    YES = auto()
    LINES = auto()
    REVISION = auto()
    EXPORT = auto()
    DIFF = auto()
    SHARE = auto()
    OFF = auto()
    TAKE = auto()


@dataclass(frozen=True, slots=True)
class Option:
    """One option; without `metavar` it is a switch. `convert` raises ValueError; `repeat`: it may
    be given several times."""

    flag: str
    group: Group
    help: str
    metavar: str | None = None
    convert: Callable[[str], object] = check.utf8
    short: str | None = None
    repeat: bool = False

    @property
    def field(self) -> str:
        """The field of `Given` that holds it."""
        name = self.flag.removeprefix("--").replace("-", "_")
        return {"as": "who", "id": "token_id"}.get(name, name)


@dataclass(frozen=True, slots=True)
class Given:
    """Every option as it was given; None (a switch: False) = it was not."""

    name: str | None = None
    model: str | None = None
    revision: str | None = None
    engine: str | None = None
    device: str | None = None
    dtype: check.Dtype | None = None
    tp: int | None = None
    verify: bool = False
    plain_engine: bool = False
    idle_exit: float | None = None
    max_context: int | None = None
    steps: int | None = None
    greedy: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    candidates: int | None = None
    no_kv_cache: bool = False
    score_prompt: bool = False
    private: bool = False
    chat: bool = False
    raw: bool = False
    system: str | None = None
    prompt_file: str | None = None
    no_specials: bool = False
    prompt_ids: str | None = None
    messages: str | None = None
    until: tuple[str, ...] = ()
    fail_on_until: bool = False
    stop: tuple[str, ...] = ()
    timeout: float | None = None
    watch: tuple[str, ...] = ()
    record: str | None = None
    json: bool = False
    echo: bool = False
    keep: bool = False
    session: str | None = None
    observe: bool = False
    share: str | None = None
    share_control: str | None = None
    who: str | None = None
    token_id: int | None = None
    text: str | None = None
    off: bool = False
    take: bool = False
    no_wait: bool = False
    yes: bool = False
    lines: int | None = None
    follow: bool = False
    to: str | None = None
    out: str | None = None
    tol: float | None = None
    debug: bool = False
    help: bool = False
    version: bool = False


def _utf8_or_empty(text: str) -> str:
    return check.utf8(text) if text else text


def _in_range(name: str) -> Callable[[str], float]:
    return check.number(*check.SAMPLER_RANGES[name])


def _temperature(text: str) -> float:
    value = check.number(0)(text)
    return _in_range("temperature")(text) if value else value


def _timeout(text: str) -> float:
    seconds = check.duration(text)
    if not 0 < seconds < 1e9:
        raise ValueError(f"must be longer than nothing, not {text}")
    return seconds


def _whole(least: int) -> Callable[[str], int]:
    return check.whole(least, check.COUNT)


def _name(text: str) -> str:
    return check_name(text)


_G = Group
OPTIONS: Final = (
    Option("--name", _G.NAME, "which daemon (default: default)", "NAME", _name),
    Option("--model", _G.PLACE, "a name, a directory or a .gguf file", "M"),
    Option("--revision", _G.REVISION, "of a model from the hub", "R"),
    Option("--engine", _G.PLACE, "hf (default) or scripted", "E", check.engine),
    Option(
        "--device", _G.PLACE, "auto (default), cpu, cuda, cuda:N or cuda:N,M", "D", check.device
    ),
    Option("--dtype", _G.PLACE, "auto (default), bf16, fp16 or fp32", "T", check.dtype),
    Option("--tp", _G.PLACE, "tensor-parallel ranks (1)", "N", check.ranks),
    Option("--verify", _G.PLACE, "hash the weights files while loading"),
    Option("--plain-engine", _G.PLACE, "the library's model as it is, nothing made faster"),
    Option(
        "--idle-exit",
        _G.PLACE,
        "leave after so long unused; 0: with the last viewer (2h; by start: never)",
        "DURATION",
        check.idle_exit,
    ),
    Option(
        "--max-context",
        _G.LIMIT,
        "positions a session may grow to (as the model was made for)",
        "N",
        _whole(1),
    ),
    Option(
        "--steps",
        _G.SESSION,
        "at most N new tokens (until end of sequence, or a full context)",
        "N",
        _whole(0),
    ),
    Option("--greedy", _G.SESSION, "always the most probable token (default)"),
    Option("--temperature", _G.SESSION, "sample; 0 = greedy", "T", _temperature),
    Option("--top-k", _G.SESSION, "sample from the K best", "K", _whole(1)),
    Option("--top-p", _G.SESSION, "sample from mass P", "P", check.number(above=0, most=1)),
    Option("--min-p", _G.SESSION, "drop what is below P times the best", "P", check.number(0, 1)),
    Option("--seed", _G.SESSION, "of the draws", "S", check.whole(0, 2**64 - 1)),
    Option("--repetition-penalty", _G.SESSION, "1 = none", "X", _in_range("repetition_penalty")),
    Option("--presence-penalty", _G.SESSION, "0 = none", "X", _in_range("presence_penalty")),
    Option("--frequency-penalty", _G.SESSION, "0 = none", "X", _in_range("frequency_penalty")),
    Option(
        "--candidates",
        _G.SESSION,
        "candidates a step carries (20)",
        "K",
        _whole(1),
    ),
    Option("--no-kv-cache", _G.SESSION, "every step re-reads everything"),
    Option("--score-prompt", _G.SESSION, "also how likely each token of the prompt was"),
    Option("--private", _G.SESSION, "keep no recording once the session is closed"),
    Option("--chat", _G.SESSION, "apply the model's chat template"),
    Option("--raw", _G.SESSION, "the prompt as it is (default)"),
    Option("--system", _G.SESSION, "system message for the template", "TEXT", _utf8_or_empty),
    Option(
        "--prompt-file", _G.SESSION, "the prompt, byte-exact; - = standard input", "F", check.plain
    ),
    Option("--no-specials", _G.SESSION, "text that looks like a special token stays text"),
    Option("--prompt-ids", _G.SESSION, "the prompt as token ids: a JSON list or white space", "F"),
    Option("--messages", _G.SESSION, "a conversation for the chat template", "FILE.json"),
    Option(
        *("--until", _G.SESSION, "stop where this is true; may be repeated", "COND"),
        _utf8_or_empty,
        repeat=True,
    ),
    Option("--fail-on-until", _G.RUN, "exit 1 when --until stopped it"),
    Option("--stop", _G.SESSION, "stop when this text was written", "TEXT", repeat=True),
    Option(
        "--timeout",
        _G.SESSION,
        "stop at the next step after so long, loading excluded; run: exit 124",
        "DURATION",
        _timeout,
    ),
    Option(
        "--watch",
        _G.SESSION,
        "numbers of this token in every step; 16 at most",
        "TEXT",
        repeat=True,
    ),
    Option("--record", _G.RUN, "also write the session's log here", "FILE", check.plain),
    Option("--json", _G.JSON, "one JSON object a line"),
    Option("--echo", _G.RUN, "print the prompt first"),
    Option("--keep", _G.RUN, "leave the session open at the end"),
    Option("--share", _G.SHARE, "who else may watch: alice,bob or @group", "WHO", check.accounts),
    Option("--share-control", _G.SHARE, "who else may command", "WHO", check.accounts),
    Option("--session", _G.ATTACH, "which session", "ID"),
    Option("--observe", _G.ATTACH, "only watch: change nothing"),
    Option("--id", _G.FORCE, "the id of one token", "ID", check.whole(0, 2**32 - 1)),
    Option("--text", _G.FORCE, "a text; its tokens are appended one after the other", "TEXT"),
    Option("--as", _G.WHO, "name shown to others (user@host)", "WHO", check.shown_name),
    Option("--off", _G.OFF, "no longer: it may be removed to make room"),
    Option("--take", _G.TAKE, "also when somebody has the lease: they are told"),
    Option("--no-wait", _G.NO_WAIT, "return when the daemon answers, before the model is ready"),
    Option("--yes", _G.YES, "do not ask"),
    Option("--lines", _G.LINES, "how many from the end (200)", "N", check.whole(0), "-n"),
    Option("--follow", _G.LINES, "go on with what comes", short="-f"),
    Option("--to", _G.EXPORT, "jsonl, csv, html, trace or text", "FORMAT"),
    Option("--out", _G.EXPORT, "into this file instead of standard output", "PATH", check.plain),
    Option(
        "--tol",
        _G.DIFF,
        "difference of probabilities that counts (0.001; 0.05 with bf16)",
        "P",
        check.number(0, 1),
    ),
    Option("--debug", _G.COMMON, "tracebacks instead of one-line errors"),
    Option("--help", _G.COMMON, "this text", short="-h"),
    Option("--version", _G.COMMON, "the version"),
)


def options_of(groups: Group) -> Iterable[Option]:
    """The options of a command that takes these groups."""
    return (option for option in OPTIONS if option.group in groups | Group.COMMON)
