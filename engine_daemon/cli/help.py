"""The text of `--help`, made from the tables of commands and options."""

from engine_daemon.cli.options import OPTIONS, Option, options_of
from engine_daemon.cli.parser import COMMANDS, SCREEN, verbs_of


def help_text(name: str) -> str:
    """Help for one command; for a word with verbs, these; for SCREEN, all commands."""
    if name not in COMMANDS:
        return _verbs_text(name)
    command = COMMANDS[name]
    lines = [
        f"Usage: {_usage(name)} [options]",
        "",
        command.help[0].upper() + command.help[1:] + ".",
    ]
    if name == SCREEN:
        rows = [(_usage(n), c.help) for n, c in COMMANDS.items() if n != SCREEN]
        lines += ["", "Commands", *_rows(rows)]
    options = [(_written(o), o.help) for o in options_of(command.groups)]
    lines += ["", "Options", *_rows(options), ""]
    if name == SCREEN:
        lines += ["More options; llm-inspect COMMAND --help says what each does", *_more(), ""]
    return "\n".join(lines)


def _more() -> list[str]:
    """What other commands take beyond what the screen does."""
    known = set(options_of(COMMANDS[SCREEN].groups))
    rows = []
    for name, command in COMMANDS.items():
        more = [_written(o) for o in options_of(command.groups) if o not in known]
        if more:
            rows.append((name, ", ".join(more)))
    return _rows(rows)


def _verbs_text(word: str) -> str:
    """The verbs of a word, and every option under the verbs that take it."""
    verbs = verbs_of(word)
    rows = [(_usage(f"{word} {verb}"), COMMANDS[f"{word} {verb}"].help) for verb in verbs]
    taken = {verb: set(options_of(COMMANDS[f"{word} {verb}"].groups)) for verb in verbs}
    sections: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for option in OPTIONS:
        by = tuple(verb for verb in verbs if option in taken[verb])
        if by:
            sections.setdefault(by, []).append((_written(option), option.help))
    lines = [f"Usage: llm-inspect {word} {'|'.join(verbs)} [options]", "", *_rows(rows)]
    for by, options in sections.items():
        whose = "" if len(by) == len(verbs) else f" of {', '.join(by)}"
        lines += ["", f"Options{whose}", *_rows(options)]
    return "\n".join([*lines, ""])


def _usage(name: str) -> str:
    return " ".join(filter(None, ("llm-inspect", name, COMMANDS[name].usage)))


def _written(option: Option) -> str:
    flags = f"{option.short}, {option.flag}" if option.short else option.flag
    return f"{flags} {option.metavar}" if option.metavar else flags


def _rows(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(left) for left, _ in rows) + 2
    return [f"  {left:<{width}}{right}" for left, right in rows]
