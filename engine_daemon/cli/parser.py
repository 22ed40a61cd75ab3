"""Words of the command line → which command, its arguments and options (CONTRACT section 2).

Decides nothing and starts nothing; every fault is an InspectError with exit code 2.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

import msgspec

from engine_daemon.cli.options import Given, Group, Option, options_of
from engine_daemon.errors import InspectError
from engine_daemon.nearest import near, nearest, suggestion


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its arguments as the usage line shows them, how many it takes, its options."""

    usage: str
    help: str
    groups: Group
    least: int = 0
    most: int = 0


@dataclass(frozen=True, slots=True)
class Parsed:
    """A command line that makes sense. `command` is a key of COMMANDS; SCREEN = no command. Where
    help is asked for it may be a word with verbs alone."""

    command: str
    arguments: list[str]
    given: Given


SCREEN: Final = ""
_PLACE: Final = Group.PLACE | Group.REVISION
_OPENS: Final = Group.NAME | _PLACE | Group.LIMIT | Group.SESSION | Group.WHO
_SPEAKS: Final = Group.NAME | Group.WHO
_COMMANDS: Final = _SPEAKS | Group.TAKE
_STARTS: Final = Group.NAME | _PLACE | Group.LIMIT | Group.NO_WAIT | Group.SHARE

COMMANDS: Final = {
    SCREEN: Command("[PROMPT]", "open the screen, on a new session with PROMPT", _OPENS, most=1),
    "attach": Command(
        "[WHERE]",
        "a running one: NAME, USER/NAME, ssh://HOST/NAME",
        _SPEAKS | Group.ATTACH,
        most=1,
    ),
    "run": Command("PROMPT", "decode without a screen", _OPENS | Group.RUN | Group.JSON, most=1),
    "pause": Command("SESSION", "stand at the next step", _SPEAKS, 1, 1),
    "resume": Command("SESSION", "go on", _COMMANDS, 1, 1),
    "close": Command("SESSION", "end a session; its recording stays", _COMMANDS, 1, 1),
    "step": Command("SESSION [N]", "go on by N steps (1)", _COMMANDS, 1, 2),
    "force": Command(
        "SESSION (--id ID | --text TEXT)", "append these tokens", _COMMANDS | Group.FORCE, 1, 1
    ),
    "sessions list": Command("", "open sessions and recordings", Group.NAME | Group.JSON),
    "sessions show": Command("SESSION", "all of one", Group.NAME | Group.JSON, 1, 1),
    "sessions rename": Command("SESSION TITLE", "another title", _SPEAKS, 2, 2),
    "sessions close": Command("SESSION", "end it; its recording stays", _COMMANDS, 1, 1),
    "sessions keep": Command(
        "SESSION", "never remove its recording to make room", Group.NAME | Group.OFF, 1, 1
    ),
    "sessions rm": Command("SESSION", "delete its recording", Group.NAME, 1, 1),
    "replay": Command("FILE", "the screen on a recording, without an engine", Group.NAME, 1, 1),
    "open": Command(
        "FILE",
        "go on with a recording (shown, on a terminal)",
        Group.NAME | _PLACE | Group.WHO,
        1,
        1,
    ),
    "export": Command(
        "FILE", "a recording as another file", Group.NAME | Group.EXPORT, least=1, most=1
    ),
    "diff": Command(
        "A B", "where two recordings differ", Group.NAME | Group.DIFF | Group.JSON, 2, 2
    ),
    "models list": Command("", "models in the cache", Group.NAME | Group.JSON),
    "models pull": Command(
        "NAME", "bring one into the cache", Group.NAME | Group.REVISION | Group.JSON, 1, 1
    ),
    "daemon start": Command("", "start a daemon and load its model", _STARTS),
    "daemon stop": Command("", "stop it", Group.NAME | Group.YES),
    "daemon restart": Command("", "stop and start, options kept", _STARTS | Group.YES),
    "daemon status": Command("", "what it is doing", Group.NAME | Group.JSON),
    "daemon logs": Command("", "the end of its log", Group.NAME | Group.LINES),
    "daemon stacks": Command("", "where its engine is, rank by rank", Group.NAME),
    "daemon list": Command("", "daemons on this machine", Group.JSON),
    "doctor": Command("", "what may be wrong here, and what to do", Group.JSON),
}
_DEFAULT_VERB: Final = {"sessions": "list", "models": "list"}
_WORDS: Final = tuple(dict.fromkeys(name.split()[0] for name in COMMANDS if name))


def parse(argv: Sequence[str]) -> Parsed:
    """The command line as a command; InspectError when it is none."""
    words = list(argv)
    split = words.index("--") if "--" in words else len(words)
    head, literal = words[:split], words[split + 1 :]
    if head[:1] == ["help"]:  # the word itself only: `Hello` is two edits away, and a prompt
        head = [*head[1:], "--help"]
    if _asks_of_word(head):
        return Parsed(head[0], [], Given(help=True))
    name, rest = _command(head)
    given, arguments = _options(name, rest)
    if given.help or given.version:
        return Parsed(name, [], given)
    if name == SCREEN and arguments:
        _refuse_mistyped(arguments)
    arguments += literal
    _count(name, arguments)
    return Parsed(name, arguments, given)


def verbs_of(word: str) -> list[str]:
    """What can be done with a word that is only the first of a command; else nothing."""
    return [name.split()[1] for name in COMMANDS if name.startswith(f"{word} ")]


def _asks_of_word(head: list[str]) -> bool:
    """`daemon --help`: about a word and not one of its verbs."""
    if len(head) < 2 or not verbs_of(head[0]) or not head[1].startswith("-"):
        return False
    return "--help" in head or "-h" in head


def _command(head: list[str]) -> tuple[str, list[str]]:
    """The command that the line begins with, and what follows it."""
    if not head or head[0] not in _WORDS:
        return SCREEN, head
    word, rest = head[0], head[1:]
    if word in COMMANDS:
        return word, rest
    verbs = verbs_of(word)
    if rest and not rest[0].startswith("-"):
        if rest[0] not in verbs:
            raise InspectError(f"{word} has no {rest[0]!r}", suggestion(rest[0], verbs))
        return f"{word} {rest[0]}", rest[1:]
    if word in _DEFAULT_VERB:
        return f"{word} {_DEFAULT_VERB[word]}", rest
    raise InspectError(
        f"{word} needs to know what to do", f"Write llm-inspect {word} {'|'.join(verbs)}"
    )


def _refuse_mistyped(arguments: list[str]) -> None:
    """A lone word that is almost a command is no prompt."""
    first = arguments[0]
    if first in _WORDS:
        raise InspectError(
            f"the command comes first: llm-inspect {first} …",
            f"To use the word as a prompt: llm-inspect -- {first}",
        )
    close = next((name for name in COMMANDS if name.endswith(f" {first}")), None)
    close = close or nearest(first, _WORDS)
    if close and not any(c.isspace() for c in first):
        raise InspectError(
            f"{first!r} is not a command; did you mean {close}?",
            f"To use it as a prompt: llm-inspect -- {first}",
        )


def _count(name: str, arguments: list[str]) -> None:
    command = COMMANDS[name]
    usage = f"Usage: llm-inspect {name} {command.usage}".replace("  ", " ").rstrip()
    if len(arguments) < command.least:
        raise InspectError(f"{name} needs {command.usage.split()[len(arguments)]}", usage)
    if len(arguments) > command.most:
        extra = arguments[command.most]
        hint = "Put a prompt of several words in quotes" if "PROMPT" in command.usage else usage
        raise InspectError(f"one argument too many: {extra!r}", hint)


class _Arguments(argparse.ArgumentParser):
    """argparse for the options alone; its complaints are our errors."""

    def error(self, message: str) -> NoReturn:
        flag, _, rest = message.removeprefix("argument ").partition(": ")
        flag = flag.split("/")[-1]
        if rest.startswith("expected"):
            raise InspectError(f"{flag} needs a value", f"One that begins with -: {flag}=-…")
        if rest.startswith("ignored explicit argument"):
            hint = f"A text that begins with - comes after --: {self.prog} -- '-…'"
            raise InspectError(f"{flag} takes no value", hint)
        raise InspectError(message, f"See {self.prog} --help")


def _argparse(name: str) -> _Arguments:
    parser = _Arguments(
        prog=f"llm-inspect {name}".rstrip(), add_help=False, allow_abbrev=False, usage=""
    )
    for option in options_of(COMMANDS[name].groups):
        flags = [option.short, option.flag] if option.short else [option.flag]
        if option.metavar is None:
            parser.add_argument(*flags, dest=option.field, action="store_true")
        elif option.repeat:
            parser.add_argument(
                *flags, dest=option.field, metavar=option.metavar, action="append", default=[]
            )
        else:
            parser.add_argument(*flags, dest=option.field, metavar=option.metavar)
    return parser


def _options(name: str, words: list[str]) -> tuple[Given, list[str]]:
    """The options among the words, and the words that are none."""
    known = list(options_of(COMMANDS[name].groups))
    found, rest = _argparse(name).parse_known_args(words)
    for word in rest:
        number = word[1:].isdigit() and "[N]" in COMMANDS[name].usage  # wrong, but a value
        if word.startswith("-") and word != "-" and " " not in word and not number:
            raise _unknown(name, word, known, rest)
    values = {o.field: _convert(o, getattr(found, o.field)) for o in known}
    return msgspec.convert(values, Given), rest


def _unknown(name: str, word: str, known: list[Option], rest: list[str]) -> InspectError:
    flag = word.split("=")[0]
    command = next((w for w in rest if w in _WORDS), None) if name == SCREEN else None
    close = near(flag, [o.flag for o in known])
    if command:
        hint = f"The command comes first: llm-inspect {command} …"
    elif close:
        hint = f"Did you mean --{close}?"
    else:
        hint = f"See llm-inspect {name} --help".replace("  ", " ")
    return InspectError(f"unknown option {flag}", hint)


def _convert(option: Option, value: str | bool | list[str] | None) -> object:
    if isinstance(value, list):
        return [_convert(option, one) for one in value]
    if not isinstance(value, str):
        return value
    try:
        return option.convert(value)
    except ValueError as error:
        raise InspectError(f"{option.flag} {error}") from None
