"""Telling the person something: in the last line, where the keys are, and nowhere else.

Nothing is ever laid over a pane, a field or a hint. Knows words and the last line only.
"""

from typing import Final

from textual.screen import Screen

from engine_daemon.errors import InspectError
from tui.screens.keys import KeysBar
from tui.screens.settled import Settled
from tui.text import SafeText, show_text

_CALM_S: Final = 5.0
_REFUSED_S: Final = 12.0
"""What was said goes with the next key, or after this."""


class Telling(Settled, Screen[None]):
    """A screen whose last line also says things."""

    def say(self, error: InspectError | str, *, calm: bool = False) -> None:
        """What came of a key. `calm`: it was done; else it was not."""
        words = error if isinstance(error, str) else error.lines()
        if isinstance(error, InspectError) and error.code == "no_lease":
            words = f"{error.message}\nL takes it"
        told = " · ".join(show_text(line) for line in words.split("\n"))
        self.tell(SafeText(told), calm=calm, for_s=_CALM_S if calm else _REFUSED_S)

    def tell(self, words: SafeText, *, calm: bool = False, for_s: float | None = None) -> None:
        """Say it until the next key, or that long; nothing: the keys again."""
        for bar in self.query(KeysBar):  # gone already while the screen is taken down
            bar.tell(words, calm=calm, for_s=for_s)
