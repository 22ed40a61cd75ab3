"""One command line: reads it, runs the command, says what went wrong.

Imports what a command needs when it is that command's turn: nothing here may be slow.
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from engine_daemon import __version__
from engine_daemon.cli.signals import held_back, interrupted_code, take_sigterm
from engine_daemon.cli.streams import mend_streams
from engine_daemon.errors import Exit, InspectError

if TYPE_CHECKING:
    from engine_daemon.cli.parser import Parsed

NO_SCREEN: Final = ("", "dumb")
"""Values of TERM without a cursor that could be moved."""
BUG: Final = 70
"""Exit code of a mistake of our own (EX_SOFTWARE): none of the contract's."""


def run_line(words: Sequence[str]) -> int:
    """Run one command line; the exit code."""
    words = list(words)
    mend_streams()
    take_sigterm()
    debug = "--debug" in words[: words.index("--") if "--" in words else None]
    try:
        return _dispatch(words)
    except InspectError as error:
        if debug:
            traceback.print_exc()
        _complain(*filter(None, (error.message, error.hint)), picture=error.picture)
        return error.exit_code
    except KeyboardInterrupt:
        return interrupted_code()
    except BrokenPipeError:
        from engine_daemon.cli.output import give_up_stdout

        give_up_stdout()
        return Exit.DONE
    except OSError as error:
        if debug:
            traceback.print_exc()
        what = f"cannot use {error.filename}: " if error.filename else ""
        _complain(f"{what}{error.strerror or error}", "Nothing of it is kept; --debug shows where")
        return Exit.DAEMON
    except Exception as error:  # noqa: BLE001  the edge of the process: no traceback unless asked
        if debug:
            traceback.print_exc()
        _complain(f"{type(error).__name__}: {error}", "This is a bug; --debug shows where")
        return BUG


def _complain(*lines: str, picture: str = "") -> None:
    """Say what happened and what to do, a line each whatever the texts hold; a picture as it is."""
    from engine_daemon.cli.output import say

    told = "\n".join(" ".join(line.split()) for line in lines)
    say("llm-inspect: " + told + (f"\n{picture}" if picture else ""))


def _dispatch(words: list[str]) -> int:
    if words == ["--version"]:
        return _tell(f"llm-inspect {__version__}")
    with held_back():
        from engine_daemon.cli.parser import SCREEN, parse

        parsed = parse(words)
    if parsed.given.version:
        return _tell(f"llm-inspect {__version__}")
    if parsed.given.help:
        from engine_daemon.cli.help import help_text

        return _tell(help_text(parsed.command).rstrip("\n"))
    if parsed.command in (SCREEN, "attach"):
        return _screen(parsed)
    if parsed.command == "replay":
        return _replay(parsed)
    if parsed.command == "open" and _has_screen():
        return _open(parsed)
    with held_back():
        from engine_daemon.cli.commands import run_command

    return run_command(parsed)


def _screen(parsed: "Parsed") -> int:
    """The screen: on a daemon that is started if need be, or (`attach`) on one that runs."""
    _check_terminal(_without_a_terminal(parsed))
    with held_back():
        from engine_daemon.cli.prompt import read_prompt
        from engine_daemon.cli.request import open_command, who
        from engine_daemon.cli.target import on_running, target_of
        from engine_daemon.paths import with_name

    given = parsed.given
    if parsed.command == "attach":
        return _attach(parsed)
    prompt = read_prompt(parsed.arguments, given)
    target = target_of(given)
    command = None if prompt is None else open_command(given, prompt, run=False)

    def show() -> int:
        from tui.app import run_screen

        return run_screen(
            target.paths,
            prompt=prompt,
            open_command=command,
            who=who(given),
            theme=target.theme,
        )

    try:
        return on_running(target, _or_gone(show))
    except InspectError as error:
        error.hint = with_name(error.hint, target.paths.name)
        raise


def _attach(parsed: "Parsed") -> int:
    """The screen on a daemon that runs, on this machine or another one."""
    from engine_daemon.addressing import find_session
    from engine_daemon.cli.request import who
    from engine_daemon.cli.sessions import closed_session
    from engine_daemon.cli.target import reached, state_of
    from engine_daemon.paths import with_name

    given = parsed.given
    with reached(parsed.arguments, given) as target:
        try:
            session: str | None = None
            state = state_of(target)
            if given.session is not None:
                try:
                    session = find_session(state.sessions, given.session).session
                except InspectError as error:
                    raise closed_session(target, given.session) or error from None
            from tui.app import run_screen

            return run_screen(
                target.paths,
                session=session,
                observe=given.observe,
                who=who(given),
                theme=target.theme,
                tunnel=target.tunnel,
            )
        except InspectError as error:
            error.hint = with_name(error.hint, target.paths.name)
            raise


def _or_gone(show: Callable[[], int]) -> Callable[[], int]:
    """A screen that could not attach was not begun; once attached it comes back by itself."""
    from engine_daemon.cli.target import DaemonLeftError

    def shown() -> int:
        try:
            return show()
        except InspectError as error:
            if error.code in ("no_daemon", "no_answer"):
                raise DaemonLeftError(error) from None
            raise

    return shown


def _replay(parsed: "Parsed") -> int:
    """The screen on a recording: no daemon, no engine."""
    from engine_daemon.cli.recordings import find_recording, open_recording

    if find_recording(parsed.arguments[0], parsed.given).exists():  # else that is said
        _check_terminal()
    from engine_daemon.cli.target import target_of
    from engine_daemon.recording.columns import Columns

    columns = Columns()
    recording = open_recording(parsed.arguments[0], parsed.given, columns)
    target = target_of(parsed.given)
    from tui.replay import run_replay

    return run_replay(recording, columns, target.theme, target.paths.config)


def _open(parsed: "Parsed") -> int:
    """The screen on a recording that goes on as a session."""
    from engine_daemon.cli.open import open_session
    from engine_daemon.cli.request import who
    from engine_daemon.cli.target import target_of

    target = target_of(parsed.given)
    found = open_session(parsed.arguments[0], parsed.given, target)
    from tui.app import run_screen

    return run_screen(
        target.paths, session=found.session, who=who(parsed.given), theme=target.theme
    )


def _has_terminal() -> bool:
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _has_screen() -> bool:
    return _has_terminal() and os.environ.get("TERM", "") not in NO_SCREEN


def _without_a_terminal(parsed: "Parsed") -> str:
    """What does for a screen that cannot be had."""
    if parsed.command != "attach":
        return "Without one: llm-inspect run PROMPT, or --help"
    where = parsed.arguments[0] if parsed.arguments else ""
    there = ""
    if where.startswith("ssh:"):
        from engine_daemon.remote.address import parse_remote

        there = f"{parse_remote(where).by_hand} "
    return f"Without one: {there}llm-inspect sessions list, then step, resume, pause SESSION"


def _check_terminal(instead: str = "Without one: llm-inspect run PROMPT, or --help") -> None:
    """Refuse before anything is started where there is no screen (Textual draws on stderr)."""
    if not _has_terminal():
        raise InspectError("the screen needs a terminal", instead)
    term = os.environ.get("TERM", "")
    if term in NO_SCREEN:
        named = f"TERM={term} has no screen" if term else "TERM is not set: there is no screen"
        raise InspectError(named, "Set TERM to what the terminal is, or use llm-inspect run")


def _tell(text: str) -> int:
    from engine_daemon.cli.output import tell

    tell(text)
    return Exit.DONE
