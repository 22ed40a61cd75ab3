"""The text of `--help`, made from the tables of commands and options."""

from engine_daemon.cli.options import Option, options_of
from engine_daemon.cli.parser import COMMANDS, SCREEN


def help_text(name: str) -> str:
    """Help for one command; for SCREEN, all commands."""
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
    return "\n".join([*lines, "", "Options", *_rows(options), ""])


def _usage(name: str) -> str:
    return " ".join(filter(None, ("llm-inspect", name, COMMANDS[name].usage)))


def _written(option: Option) -> str:
    flags = f"{option.short}, {option.flag}" if option.short else option.flag
    return f"{flags} {option.metavar}" if option.metavar else flags


def _rows(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(left) for left, _ in rows) + 2
    return [f"  {left:<{width}}{right}" for left, right in rows]
