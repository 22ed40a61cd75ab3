"""What is asked of the remote machine, as a script for its `sh`, and what it answered.

Plain functions on texts; nothing is run here.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine_daemon.errors import Exit, InspectError
from engine_daemon.outside import parse_json
from engine_daemon.paths import DEFAULT_NAME
from engine_daemon.remote.address import Remote

PLAIN_PATH: Final = re.compile(r"/[\w./+@=,-]*")
"""A path that means itself to ssh wherever it is written."""

_SCRIPT: Final = """\
printf '\\n%s hello\\n' {mark}
set -- {words}
if [ $# -eq 0 ]; then
  if command -v llm-inspect >/dev/null 2>&1; then set -- llm-inspect
  elif [ -x "$HOME/.local/bin/llm-inspect" ]; then set -- "$HOME/.local/bin/llm-inspect"
  else
    for how in -lc -ic; do
      found=$("${{SHELL:-/bin/sh}}" $how 'command -v llm-inspect' 2>/dev/null </dev/null |
        tail -n 1)
      if [ -x "$found" ]; then set -- "$found"; break; fi
    done
  fi
fi
if [ $# -eq 0 ]; then printf '\\n%s none\\n' {mark}
else
  printf '\\n%s asked\\n' {mark}
  "$@" daemon status --json --name={name} </dev/null 2>&1
  printf '\\n%s ended %s\\n' {mark} "$?"
fi
exec cat >/dev/null
"""
"""It waits for the end of its input, so it ends with whoever holds the other end."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the script has said so far. `word`: `hello`, `asked`, `none` or `ended`, the last one;
    `code`: of the command, once it ended; `lines`: what the command said."""

    word: str
    code: int | None
    lines: list[str]


def script(name: str, mark: str, command: Sequence[str] = ()) -> str:
    """Ask for the state of daemon `name`; `command`: the words of the remote `llm-inspect`."""
    words = [_quoted(word) for word in command]
    return _SCRIPT.format(mark=mark, words=" ".join(words), name=shlex.quote(name))


def _quoted(word: str) -> str:
    """As a word of the remote shell; `~/` is the home there."""
    home = word.startswith("~/")
    return '"$HOME"/' + shlex.quote(word[2:]) if home else shlex.quote(word)


def heard(said: Sequence[str], mark: str) -> Asked:
    """What of the lines that came is the script's; what a shell says at login is passed over."""
    word, code, lines = "", None, []
    for line in said:
        first, _, rest = line.partition(" ")
        if first == mark:
            word, _, number = rest.partition(" ")
            code = int(number) if number.isdecimal() else None
        elif word == "asked" and line.strip():
            lines.append(line)
    return Asked(word, code, lines)


def socket_of(asked: Asked, remote: Remote) -> str:
    """The path of the daemon's socket there. Raises InspectError (exit 4) when there is none."""
    if asked.word == "none" or asked.code in (126, 127):
        raise refused(
            f"there is no llm-inspect on {remote.host} that can be found",
            f'Install it there, or say where it is: [remote."{remote.host}"] command in '
            "config.toml",
            "no_command",
        )
    found = _object(asked.lines)
    if asked.code != 0 or found is None:
        raise _no_state(asked, remote)
    socket = found.get("socket")
    if not isinstance(socket, str) or not PLAIN_PATH.fullmatch(socket):
        raise _older(remote, str(found.get("version", "")))
    return socket


def _object(lines: Sequence[str]) -> dict[str, object] | None:
    for line in lines:
        if line.startswith("{"):
            try:
                found = parse_json(line)
            except ValueError:
                continue
            return found if isinstance(found, dict) else None
    return None


def _no_state(asked: Asked, remote: Remote) -> InspectError:
    """Why the command there gave no state."""
    said = " ".join(" ".join(asked.lines).split())
    if "no daemon named" in said:
        name = "" if remote.name == DEFAULT_NAME else f" --name {remote.name}"
        return refused(
            f"no daemon named {remote.name} is running on {remote.host}",
            f"Start one: {remote.by_hand} llm-inspect daemon start{name}",
            "no_daemon",
        )
    if asked.code == Exit.USAGE or asked.code == 0:
        return _older(remote, "")
    why = asked.lines[0].removeprefix("llm-inspect: ") if asked.lines else f"exit {asked.code}"
    return refused(
        f"llm-inspect on {remote.host} does not answer: {why}",
        f"Look there: {remote.by_hand} llm-inspect doctor",
        "no_answer",
    )


def _older(remote: Remote, version: str) -> InspectError:
    which = f" {version}" if version else ""
    return refused(
        f"the llm-inspect{which} on {remote.host} is too old to attach to from elsewhere",
        "Install the version of this side there, then llm-inspect daemon restart",
        "version",
    )


def refused(message: str, hint: str, code: str) -> InspectError:
    """The remote daemon cannot be reached: exit 4."""
    return InspectError(message, hint, exit_code=Exit.DAEMON, code=code)
