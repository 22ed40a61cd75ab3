"""What an action of the screen is, and where its keys work.

Knows names and words; the table is in `keymap`.
"""

from dataclasses import dataclass
from typing import Final, Literal

Scope = Literal[
    "main",
    "sequence",
    "tokens",
    "next",
    "cost",
    "prompt",
    "sampler",
    "sessions",
    "breakpoints",
    "branches",
    "text",
    "replay",
    "viewers",
    "note",
    "notes",
    "engine",
]
"""Where an action's keys work: the whole main screen, a focused pane, or another screen."""

SCOPES: Final[dict[Scope, str]] = {
    "main": "Everywhere",
    "sequence": "In SEQUENCE",
    "next": "In NEXT TOKEN",
    "tokens": "In TOKENS",
    "cost": "In COST PER STEP",
    "prompt": "New prompt",
    "sampler": "Sampler settings",
    "sessions": "Sessions",
    "breakpoints": "Breakpoints",
    "branches": "Branches",
    "text": "Force text",
    "replay": "In a replay",
    "viewers": "Viewers",
    "note": "Note",
    "notes": "Notes",
    "engine": "Engine",
}


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a key does. `name` is the method `action_<name>` of the scope's class.

    `keys` in Textual's names; `shown` as the footer prints the first of them; `footer` its place
    there (0 = none; the last ones go first when there is little room);
    `palette` whether the command palette offers it.
    """

    name: str
    keys: tuple[str, ...]
    label: str
    help: str
    scope: Scope = "main"
    shown: str = ""
    footer: int = 0
    palette: bool = True
    priority: bool = False

    @property
    def id(self) -> str:
        """What a user's keymap names it by."""
        return f"{self.scope}.{self.name}"
