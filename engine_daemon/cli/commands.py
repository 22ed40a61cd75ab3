"""From a parsed command line to the command's own file, imported when it is its turn."""

from engine_daemon.cli.parser import Parsed
from engine_daemon.cli.signals import held_back
from engine_daemon.errors import InspectError
from engine_daemon.paths import DEFAULT_NAME, with_name


def run_command(parsed: Parsed) -> int:
    """Run a command that needs no screen; its exit code."""
    try:
        return _run(parsed)
    except InspectError as error:
        error.hint = with_name(error.hint, parsed.given.name or DEFAULT_NAME)
        raise


def _run(parsed: Parsed) -> int:
    given, arguments = parsed.given, parsed.arguments
    match parsed.command.split():
        case ["run"]:
            with held_back():
                from engine_daemon.cli import run

            return run.main(arguments, given)
        case ["daemon", verb]:
            with held_back():
                from engine_daemon.cli import daemon

            return daemon.COMMANDS[verb](given)
        case ["sessions", "list"]:
            with held_back():
                from engine_daemon.cli import sessions

            return sessions.main(given)
        case ["sessions", verb]:
            with held_back():
                from engine_daemon.cli import filing

            return filing.COMMANDS[verb](arguments, given)
        case ["open"]:
            with held_back():
                from engine_daemon.cli import open as opening

            return opening.main(arguments, given)
        case ["export"]:
            with held_back():
                from engine_daemon.cli import export

            return export.main(arguments, given)
        case ["diff"]:
            with held_back():
                from engine_daemon.cli import diff

            return diff.main(arguments, given)
        case ["doctor"]:
            from engine_daemon.cli import doctor

            return doctor.main(given)
        case ["models", "pull"]:
            with held_back():
                from engine_daemon.cli import pull

            return pull.main(arguments[0], given)
        case ["models", _]:
            with held_back():
                from engine_daemon.cli import models

            return models.main(given)
        case [command]:
            with held_back():
                from engine_daemon.cli import control

            return control.main(command, arguments, given)
        case _:
            raise AssertionError(parsed.command)
