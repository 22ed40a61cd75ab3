"""Roles in a conversation that a chat template does not know: most templates say nothing of them.

They write whatever role there is (ChatML) or leave the message out (Qwen); some raise. No model has
seen a mistyped one. Knows words only.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from engine_daemon.errors import InspectError
from engine_daemon.nearest import near

USUAL: Final = ("system", "user", "assistant", "tool")
_MARK: Final = "x"
_MOST_TRIED: Final = 16
"""Each try writes the whole conversation once more; a template has few kinds of roles."""

Messages = Sequence[tuple[str, str]]


def check_spelling(messages: Messages, named: Collection[str]) -> None:
    """InspectError for a role that the template does not name (`named`: the texts in its source)
    and that is almost one of the usual ones."""
    for number, (role, _) in enumerate(messages, 1):
        if role in USUAL or role in named:
            continue
        meant = near(role, USUAL)
        if meant is not None:
            raise _unknown(number, role, f"Did you mean {meant}?")


def check_kept(
    messages: Messages, named: Collection[str], rendered: str, render: Callable[[Messages], str]
) -> None:
    """InspectError for a role that the template does not name and whose messages it leaves out:
    `rendered` is the same whatever they say. Each role is tried once, the first few."""
    tried: set[str] = set()
    for at, (role, text) in enumerate(messages):
        if role in named or role in tried:
            continue
        if len(tried) == _MOST_TRIED:
            return
        tried.add(role)
        other = [*messages[:at], (role, text + _MARK), *messages[at + 1 :]]
        if render(other) == rendered:
            known = [usual for usual in USUAL if usual in named]
            hint = f"It knows {', '.join(known)}" if known else "Leave the message out"
            raise _unknown(at + 1, role, hint, " and leaves out")


def _unknown(number: int, role: str, hint: str, more: str = "") -> InspectError:
    return InspectError(
        f"message {number} has the role {role[:40]!r}, which the chat template does not know{more}",
        hint,
        code="bad_prompt",
    )
