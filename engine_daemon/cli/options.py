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


@dataclass(frozen=True, slots=True)
class Option:
    """One option; without `metavar` it is a switch. `convert` raises ValueError."""

    flag: str
    group: Group
    help: str
    metavar: str | None = None
    convert: Callable[[str], object] = check.plain
    short: str | None = None

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
    chat: bool = False
    raw: bool = False
    system: str | None = None
    prompt_file: str | None = None
    no_specials: bool = False
    record: str | None = None
    json: bool = False
    echo: bool = False
    keep: bool = False
    session: str | None = None
    who: str | None = None
    token_id: int | None = None
    text: str | None = None
    no_wait: bool = False
    yes: bool = False
    lines: int | None = None
    debug: bool = False
    help: bool = False
    version: bool = False


def _any(text: str) -> str:
    return text


def _name(text: str) -> str:
    return check_name(text)


_G = Group
OPTIONS: Final = (
    Option("--name", _G.NAME, "which daemon (default: default)", "NAME", _name),
    Option("--model", _G.PLACE, "a name, a directory or a .gguf file", "M"),
    Option("--revision", _G.PLACE, "of a model from the hub", "R"),
    Option("--engine", _G.PLACE, "hf (default) or scripted", "E", check.engine),
    Option("--device", _G.PLACE, "auto, cpu, cuda or cuda:N", "D", check.device),
    Option("--dtype", _G.PLACE, "auto, bf16, fp16 or fp32", "T", check.dtype),
    Option("--tp", _G.PLACE, "tensor-parallel ranks (1 in this version)", "N", check.ranks),
    Option("--plain-engine", _G.PLACE, "the library's model as it is, nothing made faster"),
    Option(
        "--idle-exit",
        _G.PLACE,
        "leave after so long without use; 0: with the last viewer; never",
        "DURATION",
        check.idle_exit,
    ),
    Option(
        "--max-context", _G.LIMIT, "positions a session may grow to", "N", check.whole(1, 2**31)
    ),
    Option("--steps", _G.SESSION, "at most N new tokens", "N", check.whole(0, 2**31)),
    Option("--greedy", _G.SESSION, "always the most probable token (default)"),
    Option("--temperature", _G.SESSION, "sample; 0 = greedy", "T", check.number(0)),
    Option("--top-k", _G.SESSION, "sample from the K best", "K", check.whole(1, 2**31)),
    Option("--top-p", _G.SESSION, "sample from mass P", "P", check.number(above=0, most=1)),
    Option("--min-p", _G.SESSION, "drop what is below P times the best", "P", check.number(0, 1)),
    Option("--seed", _G.SESSION, "of the draws", "S", check.whole(0, 2**64 - 1)),
    Option("--repetition-penalty", _G.SESSION, "1 = none", "X", check.number(above=0)),
    Option("--presence-penalty", _G.SESSION, "0 = none", "X", check.number()),
    Option("--frequency-penalty", _G.SESSION, "0 = none", "X", check.number()),
    Option(
        "--candidates", _G.SESSION, "candidates a step carries (20)", "K", check.whole(1, 2**31)
    ),
    Option("--no-kv-cache", _G.SESSION, "every step re-reads everything"),
    Option("--chat", _G.SESSION, "apply the model's chat template"),
    Option("--raw", _G.SESSION, "the prompt as it is (default)"),
    Option("--system", _G.SESSION, "system message for the template", "TEXT", _any),
    Option("--prompt-file", _G.SESSION, "the prompt, byte-exact; - = standard input", "F"),
    Option("--no-specials", _G.SESSION, "text that looks like a special token stays text"),
    Option("--record", _G.RUN, "also write the session's log here", "FILE"),
    Option("--json", _G.JSON, "one JSON object a line"),
    Option("--echo", _G.RUN, "print the prompt first"),
    Option("--keep", _G.RUN, "leave the session open at the end"),
    Option("--session", _G.ATTACH, "which session", "ID"),
    Option("--id", _G.FORCE, "the token's id", "ID", check.whole(0, 2**32 - 1)),
    Option("--text", _G.FORCE, "the token's text", "TEXT"),
    Option("--as", _G.WHO, "name shown to others", "WHO"),
    Option("--no-wait", _G.NO_WAIT, "return when the daemon answers, before the model is ready"),
    Option("--yes", _G.YES, "do not ask"),
    Option("--lines", _G.LINES, "how many from the end (200)", "N", check.whole(0), "-n"),
    Option("--debug", _G.COMMON, "tracebacks instead of one-line errors"),
    Option("--help", _G.COMMON, "this text", short="-h"),
    Option("--version", _G.COMMON, "the version"),
)


def options_of(groups: Group) -> Iterable[Option]:
    """The options of a command that takes these groups."""
    return (option for option in OPTIONS if option.group in groups | Group.COMMON)
